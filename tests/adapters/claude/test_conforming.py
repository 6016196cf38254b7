"""The adapter conforms, whatever its agent."""

from __future__ import annotations

import base64

from mcp import types
from tests.adapters.conforming import Conforming, Shown

from toolcell.adapters.claude import ClaudeAdapter


class TestClaude(Conforming[types.Tool, types.CallToolResult]):
    adapter = ClaudeAdapter

    def name(self, tool: types.Tool) -> str:
        return tool.name

    def shown(self, result: types.CallToolResult) -> Shown:
        texts = [block.text for block in result.content if isinstance(block, types.TextContent)]
        images = [block.data for block in result.content if isinstance(block, types.ImageContent)]
        return Shown("\n".join(texts), tuple(map(base64.b64decode, images)), bool(result.is_error))
