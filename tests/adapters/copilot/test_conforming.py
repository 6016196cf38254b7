"""Copilot's adapter does what every adapter has to."""

from __future__ import annotations

import base64
from typing import Any

from copilot.tools import Tool, ToolInvocation, ToolResult
from tests.adapters.conforming import Conforming, Shown

from toolcell.adapters.base import AgentAdapter
from toolcell.adapters.copilot import CopilotAdapter


class TestCopilot(Conforming[Tool, ToolResult]):
    adapter = CopilotAdapter

    def name(self, tool: Tool) -> str:
        return tool.name

    def shown(self, result: ToolResult) -> Shown:
        pictures = tuple(base64.b64decode(binary.data) for binary in result.binary_results_for_llm or ())
        return Shown(result.text_result_for_llm, pictures, result.result_type != "success")

    async def run(
        self, adapter: AgentAdapter[Tool, ToolResult], tool: str, arguments: dict[str, Any], call_id: str
    ) -> ToolResult:
        """By the handler that the SDK calls; where there is none, as without an agent."""
        handlers = {one.name: one.handler for one in adapter.tools()}
        if (handler := handlers.get(tool)) is None:
            return await super().run(adapter, tool, arguments, call_id)
        result = handler(
            ToolInvocation("session", call_id, tool_name=tool, arguments=arguments, request_id=call_id)
        )
        return result if isinstance(result, ToolResult) else await result
