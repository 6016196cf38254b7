"""The page of operators: `toolcell ui` serves it beside the HTTP gateway, in one application.

`access` decides who may see and who may act, `reading` and `acting` are the routes of operators, each of which is an RPC
of the daemon, `live` tells all open pages what changes, and `files` are what a browser loads, from this server alone.
"""
