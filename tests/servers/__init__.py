"""MCP servers for tests, written on the standard library alone: programs that a test copies to where a cell reads them."""
