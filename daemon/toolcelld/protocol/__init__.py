"""The protocol between the daemon and its child processes: frames and messages.

Nouns: `Frame`, `Decoder`, and one typed value for each message. No I/O and no state.
Imported by both sides: `cell.channel` is the daemon's end, `worker.channel` is the worker's end.
`docs/worker-protocol.md` is the manual, and `docs/vectors` holds test vectors.
"""
