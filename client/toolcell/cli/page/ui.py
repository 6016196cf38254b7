"""`toolcell ui`: the page of operators, beside the HTTP gateway of the directory."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.types import ASGIApp

from toolcell._printable import json_text
from toolcell.adapters.gateway import GatewaySessions, application
from toolcell.adapters.http.server import Address
from toolcell.cli._ui.connect import CommandContext, daemon
from toolcell.cli._ui.exit_codes import Exit, Failure
from toolcell.cli._ui.options import HttpOptions
from toolcell.cli._ui.prose import print_prose
from toolcell.cli.adapters.http_server import address_of, listen, token_of
from toolcell.cli.page.access import PageAccess, PageGuard
from toolcell.cli.page.acting import add_acting
from toolcell.cli.page.calling import add_calling
from toolcell.cli.page.files import add_files, read_files
from toolcell.cli.page.live import Live
from toolcell.cli.page.reading import add_reading
from toolcell.client._launch.daemon import find


async def ui(context: CommandContext, options: HttpOptions, *, may_act: bool) -> Exit:
    """Serve the page until SIGINT or SIGTERM; with `may_act` who opens the link may also act.

    The options are where to listen, and the token of hosts, for the gateway.
    """
    address = address_of(options)
    if address.path or not address.is_loopback:
        raise Failure(
            Exit.USAGE,
            "usage",
            f"{options.address}: the page is only served on loopback.",
            "Take a port: toolcell ui 8139. From another machine, forward the same port: ssh -L 8139:127.0.0.1:8139 HOST",
        )
    token, _ = token_of(options)
    try:
        files = read_files()
    except FileNotFoundError as error:
        raise Failure(
            Exit.UNAVAILABLE, "missing_files", f"There is no {error.filename}.", "Build it: make engines"
        ) from error
    async with daemon(context, shared=True):
        pass  # it runs now
    access = PageAccess()
    live = Live(context)
    sessions = GatewaySessions(
        os.getcwd(), socket=context.socket, daemon="running" if context.socket else "start"
    )
    app = application(sessions)
    add_reading(app, context, live)
    add_acting(app, context, access)
    add_calling(app, context)
    add_files(app, files)

    def guarded(listening: Address) -> ASGIApp:
        return PageGuard(
            app,
            access,
            authorities=listening.authorities,
            token=token,
            socket=lambda: find(context.socket, "running").socket,
        )

    def say(listening: Address) -> None:
        _say(context, f"{listening.origin}/#open={access.link(may_act=may_act)}", may_act=may_act)

    return await listen(address, _both(sessions, live), guarded, say)


@asynccontextmanager
async def _both(sessions: GatewaySessions, live: Live) -> AsyncGenerator[None]:
    async with sessions, live:
        yield


def _say(context: CommandContext, link: str, *, may_act: bool) -> None:
    """Print the link, as the result of the command."""
    if context.as_json:
        print(json_text({"link": link, "may_act": may_act}), flush=True)
        return
    print(link)
    if not context.quiet:
        can = "may look and act" if may_act else "may look; --operate makes a link that may also act"
        print_prose(f"Good once, for ten minutes: who opens it {can}.")
        print_prose("Ctrl-C ends the page.")
    sys.stdout.flush()
