"""What `toolcell mcp` does before the SDK is imported, which takes longer than all the rest of its start.

`pipes` are our stdin and stdout; `requests` reads what a host says first, `wire` writes the answers, and `opening` answers.
`host_link` opens the session with the daemon for it, which the host keeps.
Nothing here imports the SDK. What it would have answered is the same: a test holds both against each other.
"""
