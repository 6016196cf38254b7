"""What people have decided about tools, as values and as the database keeps them.

`trust` has the projects that are trusted, `promises` what was accepted of the tools of MCP servers, and `disabled` the tools
that an operator has taken out of use. `consent` says how a tool stands with the trust in its project.
Nothing here knows the rest of `policy`. What makes and revokes decisions is `toolcelld.rules`.
"""
