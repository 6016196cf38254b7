"""Every command with its words, and the place of what does it: a module for each section of `--help`.

In the order of the page: `running`, `authoring`, `watching`, `steering`, `permitting`, `subcommands` and `setup`.
"""
