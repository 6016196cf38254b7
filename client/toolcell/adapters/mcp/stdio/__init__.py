"""`toolcell mcp` on stdin and stdout: one loop that owns the connection, and answers the hot messages without the SDK.

Its lines come and go by `toolcell.adapters.pipes`; `requests` reads the lines of a host, `wire` writes ours, `conversation` knows which
requests are open and which protocol is spoken, and `server` answers, or has the SDK answer.
Nothing here imports the SDK. What it would have answered is the same: tests hold both against each other.
"""
