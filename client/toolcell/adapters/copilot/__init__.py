"""For GitHub Copilot, through its own SDK: the tools of a directory, in sessions that are created and resumed.

    async with CopilotAdapter.connect(directory=".") as adapter:
        session = await adapter.create_session(client, model="gpt-5", on_permission_request=decide)

`adapter` makes the sessions and keeps their tools equal to the catalog, `session` is one session of Copilot, with what its
events say about its calls, `sub_sessions` has the sessions that tools begin, and `convert` turns our values into those of
the SDK and back.
"""

from __future__ import annotations

try:
    import copilot.session_events  # pyright: ignore[reportUnusedImport]
    import copilot.tools  # noqa: F401  # pyright: ignore[reportUnusedImport]
except ImportError as error:
    from toolcell._extras import install_command

    raise ImportError(
        f"toolcell.adapters.copilot needs GitHub's Copilot SDK. Install it: {install_command('copilot')}"
    ) from error

from .adapter import CopilotAdapter

__all__ = ["CopilotAdapter"]
