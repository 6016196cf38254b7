"""`toolcell mcp adopt` and `toolcell mcp return`: the servers of MCP hosts as sources, and back."""
