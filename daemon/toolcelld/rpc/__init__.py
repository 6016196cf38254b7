"""The gRPC services. The only package, beside `remote` and `server`, that imports grpc and the generated code.

`agent_service` and `operator_service` translate requests into calls of domain objects and domain values into messages
(`messages`); the parts of the second are in `operators`. `auth` checks tokens. Nothing here decides; no state but the streams.
Counterpart: `toolcell.client`.
"""
