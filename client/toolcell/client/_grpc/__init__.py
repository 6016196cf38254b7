"""gRPC to one daemon, without grpcio: who may be dialled (`access`), a connection (`http2`) on asyncio (`rpc`, `channel`),
and on another machine (`remote`, `tls`).

The messages are protobuf's (`methods`), and for the command, which loads no library, those of `wire`.
Counterpart: `toolcelld.server`.
"""
