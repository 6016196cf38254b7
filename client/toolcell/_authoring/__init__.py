"""`@tool` and what it accepts: options, and the discovery of tools in a module."""
