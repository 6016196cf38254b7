"""For programs of any language: sessions and calls as JSON lines on stdin and stdout, which is `toolcell bridge`.

`requests` are the messages of the host, by the readers of `fields`, and `messages` ours. `server` reads lines and has
`session`, one for each of the host's sessions, carry them out with `toolcell.client`; `output` writes, and waits where the
host does not read.
The protocol is docs/bridge.md, and its vectors are docs/vectors/bridge.json.
"""
