"""MCP servers on stdio as sources of tools: started in the cell, and spoken to by the worker.

`connection` speaks the protocol with one server, `listing` asks for what it offers, `load` makes tools of that, `offers`
reads its resources and prompts, and `result` what a call returns.
"""
