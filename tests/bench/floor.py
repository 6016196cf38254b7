"""The floor: an empty unary echo, served as the daemon serves, in a process of its own.

The same loop, the same interceptors, options and pollers of gRPC; the messages are empty.
`python floor.py SOCKET`, then one line on stdout when it serves; ends with its stdin.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import uvloop

from toolcell._own_grpc import older_pollers

with older_pollers():
    import grpc.aio

from toolcelld.rpc.auth import RuntimeDirectory, TokenInterceptor
from toolcelld.rpc.interceptors import Parser
from toolcelld.server import SERVER_OPTIONS

METHOD = "/bench.Floor/Echo"


async def main(socket: str) -> None:
    premises = RuntimeDirectory(socket)
    premises.take()
    server = grpc.aio.server(interceptors=[TokenInterceptor(premises), Parser()], options=SERVER_OPTIONS)

    async def echo(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        return request

    handle: Any = grpc.unary_unary_rpc_method_handler  # the stubs leave its types open
    handler = handle(echo)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Floor", {"Echo": handler}),))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    print("serves", flush=True)
    await asyncio.to_thread(sys.stdin.buffer.read)
    await server.stop(0)
    premises.leave()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(sys.argv[1]))
