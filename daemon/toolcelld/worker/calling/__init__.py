"""What a worker needs for a call of a tool in Python.

`call_channel` is what the tool talks through, `tool_loop` runs asynchronous tools, and `report` is what came of the call.
`process_state` puts back what the call changed in its process, and `forked` ends a process that the tool forked.
`denial` names the rule of the cell that is behind an exception, `limit` the limit, and `unreached` the host.
"""
