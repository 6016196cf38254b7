"""`toolcell mcp`: the tools of a directory for hosts that speak MCP, over stdin and stdout or over HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from toolcell import _paths
from toolcell._printable import json_text
from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.exit_codes import Exit, Failure

if TYPE_CHECKING:
    from toolcell.adapters.mcp import Address

__all__ = ["HttpOptions", "mcp", "mcp_over_http"]

MISSING = Failure(
    Exit.UNAVAILABLE,
    "missing_extra",
    "The MCP SDK, version 2 or newer, is not installed.",
    "Install it: pip install 'toolcell[mcp]'",
)
ENDS = (signal.SIGINT, signal.SIGTERM)


async def mcp(context: CommandContext) -> Exit:
    """Serve until the host closes the connection, or until SIGINT or SIGTERM."""
    try:
        from toolcell.adapters.mcp import Bridge, HostContext, NoPipe, Pipes
    except ImportError as error:
        raise MISSING from error
    surroundings = HostContext.of(os.environ, context.directory)
    bridge = Bridge(surroundings, socket=context.socket, daemon="running" if context.socket else "start")
    loop = asyncio.get_running_loop()
    try:
        async with Pipes() as pipes:
            for number in ENDS:
                loop.add_signal_handler(number, pipes.end)
            await bridge.run(pipes.read, pipes.write)
    except NoPipe as error:
        remedy = (
            "Have a host start it: docs/agents/mcp.md says how. Or serve over HTTP: toolcell mcp --http 8137"
        )
        raise Failure(Exit.USAGE, "usage", str(error), remedy) from error
    return Exit.OK


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """The options of the HTTP server: its address and the place of its token."""

    address: str
    token_file: str | None = None
    token_variable: str | None = None


async def mcp_over_http(context: CommandContext, options: HttpOptions) -> Exit:
    """Serve until SIGINT or SIGTERM; then the running calls are aborted."""
    try:
        from toolcell.adapters.mcp import PATH, AccessGuard, HttpServer, HttpSessions
    except ImportError as error:
        raise MISSING from error
    address = _address(options)
    token, whence = _token(options)
    try:
        listener = HttpServer(address)
    except OSError as error:
        where = f"{address.host}:{address.port}"
        raise Failure(
            Exit.USAGE, "usage", f"{where} cannot be listened on: {error.strerror}.", "Take another port."
        ) from error
    ended = asyncio.Event()
    for number in ENDS:
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    directory = os.getcwd()
    try:
        async with asyncio.TaskGroup() as group:
            daemon: Literal["start", "running"] = "running" if context.socket else "start"
            async with HttpSessions(directory, socket=context.socket, daemon=daemon) as guests:
                gate = AccessGuard(guests, authorities=listener.address.authorities, token=token)
                group.create_task(listener.serve(gate), name="http")
                _say(context, f"{listener.address.origin}{PATH}", directory, whence)
                await ended.wait()
            listener.end()
    finally:
        listener.close()
    return Exit.OK


def _address(options: HttpOptions) -> Address:
    from toolcell.adapters.mcp import Address

    try:
        address = Address.parse(options.address)
    except ValueError as error:
        raise Failure(
            Exit.USAGE,
            "usage",
            f"--http {options.address}: {error}.",
            "Take a port, or an IP address and a port: --http 8137, --http 127.0.0.1:8137, --http [::1]:8137",
        ) from error
    if not address.is_loopback and options.token_file is None and options.token_variable is None:
        raise Failure(
            Exit.USAGE,
            "usage",
            f"{address.host} can be reached from other machines, and no token is set.",
            "Name one: --token-file FILE or --token-env NAME. "
            "Or serve this machine alone: --http 127.0.0.1:PORT",
        )
    return address


def _token(options: HttpOptions) -> tuple[str, str]:
    """Return the token and a description of its place."""
    from toolcell.adapters.mcp import BadToken, token_in_environment, token_in_file

    try:
        if options.token_variable is not None:
            if options.token_file is not None:
                raise BadToken("--token-file and --token-env are two tokens, and there is one.")
            token = token_in_environment(options.token_variable, os.environ)
            return token, f"in the environment variable {options.token_variable}"
        path = os.path.abspath(options.token_file or os.path.join(_paths.state_directory(), "mcp.token"))
        token, made = token_in_file(path)
        return token, f"in {path}" + (", made for you now" if made else "")
    except BadToken as error:
        raise Failure(
            Exit.USAGE,
            "usage",
            str(error),
            "Name a file that is yours alone, or one that is not there and will be made: --token-file FILE",
        ) from error


def _say(context: CommandContext, url: str, directory: str, whence: str) -> None:
    """Print the address of the server to stdout, as the result of the command."""
    if context.as_json:
        print(json_text({"url": url, "directory": directory, "token": whence}), flush=True)
        return
    print(f"The tools of {directory} are at {url}", flush=True)
    print(f"The token is {whence}; hosts send it as Authorization: Bearer TOKEN", flush=True)
    if not url.startswith(("http://127.", "http://[::1]")) and not context.quiet:
        warning = "Others can read along: the token and all else travel in clear text. Put a proxy with TLS before it."
        print(warning, file=sys.stderr)
