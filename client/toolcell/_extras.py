"""How the packages of an extra are installed into the environment that Toolcell runs in, whatever made that."""

from __future__ import annotations

import re
import shlex
import sys
from importlib import metadata
from importlib.util import find_spec


def install_command(extra: str) -> str:
    """Return the command for a shell that installs what an extra needs beside this Toolcell.

    It names the packages and not the extra, so that it also works where Toolcell was installed from a directory, a
    repository or by `uv tool install`, whose environments have no pip.

    Args:
        extra: The name of the extra, as in pyproject.toml.
    """
    needed = [f"toolcell[{extra}]"]
    try:
        found = metadata.requires("toolcell") or ()
    except metadata.PackageNotFoundError:  # it runs from its sources
        found = ()
    of_extra = re.compile(rf"""\s*;\s*extra\s*==\s*['"]{re.escape(extra)}['"]\s*$""")
    needed = [of_extra.sub("", each) for each in found if of_extra.search(each)] or needed
    words = shlex.join(needed)
    if find_spec("pip") is not None:
        return f"{shlex.quote(sys.executable)} -m pip install {words}"
    return f"uv pip install --python {shlex.quote(sys.executable)} {words}"
