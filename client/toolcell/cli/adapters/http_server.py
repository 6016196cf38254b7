"""A server over HTTP from its options to its end: the address, the token, what is printed, the signals."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from starlette.types import ASGIApp

from toolcell import _paths
from toolcell._printable import json_text
from toolcell.adapters.http.auth import AccessGuard
from toolcell.adapters.http.server import Address, HttpServer
from toolcell.adapters.http.token import BadToken, token_in_environment, token_in_file
from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.exit_codes import Exit, Misuse
from toolcell.cli._ui.options import HttpOptions
from toolcell.cli._ui.prose import print_prose, prose

ENDS = (signal.SIGINT, signal.SIGTERM)


async def serve(
    context: CommandContext,
    options: HttpOptions,
    sessions: AbstractAsyncContextManager[object],
    app: ASGIApp,
    *,
    path: str,
) -> Exit:
    """Serve an application to hosts until SIGINT or SIGTERM; then leave `sessions`, which ends what runs, and stop listening."""
    address = address_of(options)
    token, whence = token_of(options)

    def guarded(listening: Address) -> ASGIApp:
        return AccessGuard(app, authorities=listening.authorities, token=token, path=path)

    return await listen(address, sessions, guarded, lambda listening: _say(context, listening, path, whence))


async def listen(
    address: Address,
    sessions: AbstractAsyncContextManager[object],
    guarded: Callable[[Address], ASGIApp],
    say: Callable[[Address], None],
) -> Exit:
    """Serve what `guarded` returns for the address that is listened on until SIGINT or SIGTERM, and leave `sessions`.

    Args:
        address: Where to listen.
        sessions: What is entered before the first request, and left before the last connection is closed.
        guarded: Makes the application, with its guard.
        say: Prints the address, as the result of the command.
    """
    try:
        listener = HttpServer(address)
    except OSError as error:
        where = address.path or f"{address.host}:{address.port}"
        remedy = "Take another path." if address.path else "Take another port."
        raise Misuse(f"{where} cannot be listened on: {error.strerror}.", remedy) from error
    ended = asyncio.Event()
    for number in ENDS:
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    try:
        async with asyncio.TaskGroup() as group:
            async with sessions:
                group.create_task(listener.serve(guarded(listener.address)), name="http")
                say(listener.address)
                await ended.wait()
            listener.end()
    finally:
        listener.close()
    return Exit.OK


def address_of(options: HttpOptions) -> Address:
    """Return where to listen. Raises Failure for what is no address, and for one of other machines without a token."""
    try:
        address = Address.parse(options.address)
    except ValueError as error:
        raise Misuse(
            f"{options.flag}{options.address}: {error}.",
            f"Take a port, an IP address and a port, or the path of a socket: "
            f"{options.flag}8137, {options.flag}127.0.0.1:8137, {options.flag}[::1]:8137, {options.flag}./http.sock",
        ) from error
    if not address.is_loopback and options.token_file is None and options.token_variable is None:
        raise Misuse(
            f"{address.host} can be reached from other machines, and no token is set.",
            "Name one: --token-file FILE or --token-env NAME. "
            f"Or serve this machine alone: {options.flag}127.0.0.1:PORT",
        )
    return address


def token_of(options: HttpOptions) -> tuple[str, str]:
    """Return the token and a description of its place."""
    try:
        if options.token_variable is not None:
            if options.token_file is not None:
                raise BadToken("--token-file and --token-env are two tokens, and there is one.")
            token = token_in_environment(options.token_variable, os.environ)
            return token, f"in the environment variable {options.token_variable}"
        path = os.path.abspath(
            options.token_file or os.path.join(_paths.state_directory(), options.default_file)
        )
        token, made = token_in_file(path)
        return token, f"in {path}" + (", made for you now" if made else "")
    except BadToken as error:
        raise Misuse(
            str(error),
            "Name a file that is yours alone, or one that is not there and will be made: --token-file FILE",
        ) from error


def _say(context: CommandContext, address: Address, path: str, whence: str) -> None:
    """Print the address of the server to stdout, as the result of the command."""
    daemon = context.socket or _paths.socket_path()
    directory = daemon if _paths.is_elsewhere(daemon) else os.getcwd()
    url = f"{address.origin}{path}"
    if context.as_json:
        where = {"socket": address.path} if address.path else {}
        print(json_text({"url": url, **where, "directory": directory, "token": whence}), flush=True)
        return
    on = f" on the socket {address.path}" if address.path else ""
    print_prose(f"The tools of {directory} are at {url}{on}")
    print_prose(f"The token is {whence}; hosts send it as Authorization: Bearer TOKEN")
    sys.stdout.flush()
    if not address.is_loopback and not context.quiet:
        warning = "Others can read along: the token and all else travel in clear text. Put a proxy with TLS before it."
        print(prose(warning, sys.stderr), file=sys.stderr)
