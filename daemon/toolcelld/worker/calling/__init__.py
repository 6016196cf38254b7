"""What a worker needs for a call of a tool in Python.

`call_channel` is what the tool talks through, `tool_loop` runs asynchronous tools, and `report` is what came of the call.
`denial` names the rule of the cell that is behind an exception, and `limit` the limit.
"""
