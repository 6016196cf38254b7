"""The example of a plugin file, and the JSON Schema beside it, by which editors complete it."""

from __future__ import annotations

import json
import os
from importlib import resources

DIRECTORY = os.path.join(".toolcell", "plugins")
SCHEMA = "_schema.json"  # files with an underscore in front are no plugin files
FIRST = "find"
ARGUMENTS = "pattern=TODO"


def example(name: str) -> str:
    """Return a plugin file with two tools that work in every project."""
    text = {"type": "string"}
    find = {
        "name": f"{name}-{FIRST}",
        "description": "Find lines in the project's files. Returns nothing if there are none.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "pattern": {**text, "description": "A basic regular expression."},
                "directory": {**text, "description": "Where to look.", "default": "."},
            },
            "required": ["pattern"],
        },
        "handler": {
            "type": "shell",
            "command": "grep -rn -- {{pattern}} {{directory}}",
            "timeout": 10_000,
            "allowedExitCodes": [0, 1],
        },
    }
    read = {
        "name": f"{name}-read",
        "description": "Read a text file of the project.",
        "inputSchema": {
            "type": "object",
            "properties": {"path": {**text, "description": "The file, from the project's directory."}},
            "required": ["path"],
        },
        "handler": {"type": "file-read", "basePath": ".", "maxSize": 100_000},
    }
    content = {"$schema": f"./{SCHEMA}", "name": name, "version": "0.1.0", "tools": [find, read]}
    return json.dumps(content, indent=2) + "\n"


def schema() -> bytes:
    """Return the JSON Schema of plugin files."""
    return resources.files("toolcell._plugins").joinpath("plugin.schema.json").read_bytes()
