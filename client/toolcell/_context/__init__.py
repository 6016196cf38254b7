"""`ToolContext`: what one call gives to its tool, with subprocesses and logging bound to that call."""
