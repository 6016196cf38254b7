"""`ToolContext`: the context of one call, with its subprocesses and its logger."""
