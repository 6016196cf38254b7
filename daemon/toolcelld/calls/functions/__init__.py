"""Functions of files that are not tools, run in cells as tools are: hooks of calls and of definitions.

`hook_run` runs one; the others say which, and what becomes of what it returns.
"""
