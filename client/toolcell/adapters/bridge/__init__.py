"""For programs of any language: sessions and calls as JSON lines on stdin and stdout, which is `toolcell bridge`.

`messages` are what both sides say; `server` reads the host's and has `session`, one for each of its sessions, carry them
out with `toolcell.client`; `output` writes, and waits where the host does not read.
The protocol is docs/bridge.md, and its vectors are docs/vectors/bridge.json.
"""
