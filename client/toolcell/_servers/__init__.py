"""MCP servers on stdio as sources of tools: started in the cell, and spoken to by the worker.

`connection` speaks the protocol with one server, `load` makes tools of what it offers, `result` reads what it returns.
"""
