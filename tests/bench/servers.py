"""The servers that the bench compares with, each run as a program: `python -m tests.bench.servers KIND ADDRESS`.

KIND is `grpc`, with the path of a socket, or `fastmcp` or `mcp`, with `stdio` or the number of a port.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import AsyncIterator
from typing import Any

__all__ = ["ECHO", "PING"]

ECHO = "/bench.Floor/Echo"
PING = "/bench.Floor/Ping"


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def large(size: int) -> str:
    """Return a text of so many characters."""
    return "x" * size


def serve_mcp(package: str, address: str) -> None:
    """Serve the tools with FastMCP or with `mcp`, over stdio or HTTP on loopback."""
    # Installed by `make bench` alone, so checkers do not know it.
    server: Any = (
        importlib.import_module("fastmcp").FastMCP("bench")
        if package == "fastmcp"
        else importlib.import_module("mcp.server.mcpserver").MCPServer("bench", log_level="ERROR")
    )
    for function in (add, large):
        server.tool()(function)
    quiet: dict[str, Any] = {"show_banner": False} if package == "fastmcp" else {}
    if address == "stdio":
        server.run(**quiet)
    elif package == "fastmcp":
        server.run(transport="http", port=int(address), log_level="ERROR", **quiet)
    else:
        server.run(transport="streamable-http", port=int(address))


async def serve_grpc(socket: str) -> None:
    """Serve empty messages as the daemon serves: its loop, interceptors, options and pollers.

    Prints one line when it serves, and ends with its stdin.
    """
    from toolcelld.pollers import older_pollers

    with older_pollers():
        import grpc.aio

    from toolcelld.rpc.auth import TokenInterceptor
    from toolcelld.rpc.interceptors import RefusalInterceptor
    from toolcelld.runtime_directory import RuntimeDirectory
    from toolcelld.server import SERVER_OPTIONS

    directory = RuntimeDirectory(socket)
    directory.take()
    server = grpc.aio.server(
        interceptors=[TokenInterceptor(directory), RefusalInterceptor()], options=SERVER_OPTIONS
    )

    async def echo(request: bytes, context: Any) -> bytes:
        return request

    async def ping(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request

    unary: Any = grpc.unary_unary_rpc_method_handler  # the stubs leave its types open
    stream: Any = grpc.stream_stream_rpc_method_handler
    handlers = {"Echo": unary(echo), "Ping": stream(ping)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Floor", handlers),))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    print("serves", flush=True)
    await asyncio.to_thread(sys.stdin.buffer.read)
    await server.stop(0)
    directory.leave()


def main() -> None:
    kind, address = sys.argv[1:]
    if kind != "grpc":
        serve_mcp(kind, address)
        return
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve_grpc(address))


if __name__ == "__main__":
    main()
