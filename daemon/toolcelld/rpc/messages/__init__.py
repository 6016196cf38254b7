"""The messages of the contract, and what the daemon makes of them.

`decoding` reads requests, `arguments` joins those that come in parts; `encoding` writes answers and events, `refusals` the
status of an RPC that is refused.
"""
