"""OpenCode, by two roads.

The plugin: `plugin/` makes the tools OpenCode's own, with everything that a tool may know, tell and ask; `plugin_entry` is
what stands for it in OpenCode's configuration. It is JavaScript, and speaks to the daemon by `toolcell bridge`.

The bridge: `register` has a running `opencode serve` start `toolcell mcp` for a directory, and takes it back.

There is no adapter class here. OpenCode's tools live in its own process, which is JavaScript: the plugin is the
adapter, with a session of the bridge, and what tools request of their agent is answered there.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from .entry import plugin_entry, plugin_path

__all__ = ["OpenCodeApi", "OpenCodeError", "Registration", "plugin_entry", "plugin_path", "register"]

if TYPE_CHECKING:
    from .api import OpenCodeApi, OpenCodeError
    from .registration import Registration, register
else:

    def __getattr__(name: str) -> object:
        """What needs httpx2 is imported when it is used: the plugin needs nothing, and OpenCode waits for its path."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            module = import_module(".api" if name.startswith("OpenCode") else ".registration", __name__)
        except ImportError as error:
            from toolcell._extras import install_command

            message = f"{name} needs httpx2. Install it: {install_command('opencode')}"
            raise ImportError(message) from error
        return getattr(module, name)
