"""OpenCode, by two roads.

The plugin: `toolcell-plugin.js` makes the tools OpenCode's own, with everything that a tool may know, tell and ask;
`plugin_entry` is what stands for it in OpenCode's configuration. Its sources are in `plugin/`.

The bridge: `register` has a running `opencode serve` start `toolcell mcp` for a directory, and takes it back.

There is no `AgentAdapter` here. OpenCode's tools live in its own process, which is JavaScript: the plugin is the
adapter, with a session of its own, and what tools request of their agent is answered there.
"""

from __future__ import annotations

try:
    import httpx2  # noqa: F401  # pyright: ignore[reportUnusedImport]
except ImportError as error:
    raise ImportError(
        "toolcell.adapters.opencode needs httpx2. Install it: pip install 'toolcell[opencode]'"
    ) from error

from .api import OpenCodeApi, OpenCodeError
from .entry import plugin_entry, plugin_path
from .registration import Registration, register

__all__ = ["OpenCodeApi", "OpenCodeError", "Registration", "plugin_entry", "plugin_path", "register"]
