"""MCP over HTTP: the listener, its sessions and its access token."""
