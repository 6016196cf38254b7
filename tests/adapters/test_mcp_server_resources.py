"""Resources and prompts of the user's MCP servers through `toolcell mcp`, as a host has them in both eras of the protocol."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mcp import MCPError, types
from tests.adapters.test_mcp_bridge import host
from tests.daemons import RunningDaemon
from tests.process.test_server_resources import serve

pytestmark = pytest.mark.anyio

ACCEPTED = types.ElicitResult(action="accept", content={"name": "Ada"})


async def accept(_context: Any, _params: Any) -> types.ElicitResult:
    return ACCEPTED


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_resources_and_prompts_of_a_server_reach_a_host(daemon: RunningDaemon, era: str) -> None:
    serve(daemon)
    async with host(daemon, era, elicitation_callback=accept) as client:
        listed = (await client.list_resources()).resources
        assert [each.uri for each in listed] == ["book://one", "book://long", "book://bytes"]
        templates = (await client.list_resource_templates()).resource_templates
        assert [each.uri_template for each in templates][1:] == ["book://shelf/{number}{?page}"]
        prompts = (await client.list_prompts()).prompts
        assert [each.name for each in prompts] == ["library_ask", "library_form"]

        (one,) = (await client.read_resource("book://one")).contents
        assert one == types.TextResourceContents(uri="book://one", mime_type="text/plain", text="hello")
        (one,) = (await client.read_resource("toolcell://server/library/book://one")).contents
        assert one.uri == "toolcell://server/library/book://one"
        (shelf,) = (await client.read_resource("book://shelf/3?page=4")).contents
        assert isinstance(shelf, types.TextResourceContents)
        assert shelf.text == "shelf ['3']"
        (data,) = (await client.read_resource("book://bytes")).contents
        assert isinstance(data, types.BlobResourceContents)
        assert data.blob == "AP8="
        (long,) = (await client.read_resource("book://long")).contents
        assert isinstance(long, types.TextResourceContents)
        assert "toolcell_read_output(output_id=" in long.text
        for uri in ("book://none", "toolcell://server/absent/book://one", "book://shelf"):
            with pytest.raises(MCPError):
                await client.read_resource(uri)

        links = (await client.call_tool("library_link", {})).content
        assert [getattr(link, "uri", "") for link in links] == [
            "book://one", "https://example.org/", "toolcell://server/library/book://x",
        ]  # fmt: skip
        prompt = await client.get_prompt("library_ask", {"about": "it"})
        assert [message.role for message in prompt.messages] == ["user", "user", "assistant", "user"]
        embedded = prompt.messages[2].content
        assert isinstance(embedded, types.EmbeddedResource)
        assert embedded.resource.uri == "book://one"
        asked = await client.get_prompt("library_form")
        assert "Ada" in str(asked.messages[0].content)
        with pytest.raises(MCPError, match="There is no prompt ask"):
            await client.get_prompt("ask")
        reference = types.PromptReference(name="library_ask")
        completed = await client.complete(reference, {"name": "about", "value": "x"})
        assert completed.completion.values == ["x-ask", "\\x1b[31m"]


async def test_a_host_is_notified_of_other_resources(daemon: RunningDaemon) -> None:
    serve(daemon)
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def hear(message: Any) -> None:
        if (method := getattr(message, "method", None)) is not None:
            heard.put_nowait(method)

    async with host(daemon, "legacy", message_handler=hear) as client:
        assert len((await client.list_resources()).resources) == 3
        serve(daemon, "odd")
        while await heard.get() != "notifications/resources/list_changed":
            pass
        assert len((await client.list_resources(cache_mode="bypass")).resources) > 3
