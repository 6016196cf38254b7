"""Outputs that were cut, as a host reads them: listed, completed, linked to, and read in ranges."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from mcp import Client, MCPError, types
from mcp.shared.exceptions import MCPDeprecationWarning
from tests.adapters.test_mcp_bridge import host, text
from tests.daemons import RunningDaemon

from toolcell.adapters.mcp.resources import OUTPUTS_MAX, READ_BYTES_MAX, TEMPLATE, URI, KeptOutputs
from toolcell.client import Output

TOOLS = '''
from toolcell import tool

@tool
def long(lines: int = 4000, letter: str = "x") -> str:
    """Many lines."""
    return "\\n".join(f"{number:06} {letter * 50}" for number in range(lines))
'''
WHOLE = "\n".join(f"{number:06} {'ü' * 50}" for number in range(4000))


@pytest.fixture
def served(daemon: RunningDaemon) -> RunningDaemon:
    """A daemon, and a project with a tool that says much."""
    daemon.tool("kit", TOOLS)
    return daemon


@pytest.fixture(params=["legacy", "2026-07-28"])
def era(request: pytest.FixtureRequest) -> str:
    """The protocol that the host speaks."""
    mode: str = request.param
    return mode


SHOWS_LINKS = types.Implementation(name="gemini-cli-mcp-client", version="1")


async def read(client: Client, uri: str) -> types.TextResourceContents:
    """The one contents of a resource."""
    (contents,) = (await client.read_resource(uri)).contents
    assert isinstance(contents, types.TextResourceContents)
    return contents


@pytest.mark.anyio
async def test_an_output_that_was_cut_is_a_resource(served: RunningDaemon, era: str) -> None:
    async with host(served, era, client_info=SHOWS_LINKS) as client:
        assert (await client.list_resources()).resources == []
        short = await client.call_tool("kit_long", {"lines": 2})
        assert len(short.content) == 1

        cut = await client.call_tool("kit_long", {"letter": "ü"})
        link = cut.content[-1]
        assert isinstance(link, types.ResourceLink)
        assert link.size == len(WHOLE.encode())
        (listed,) = (await client.list_resources(cache_mode="bypass")).resources
        assert (listed.uri, listed.name, listed.title) == (link.uri, link.name, "Output of kit_long")
        (template,) = (await client.list_resource_templates()).resource_templates
        assert template.uri_template == TEMPLATE

        shown = await read(client, f"{link.uri}?length={10**17}")
        assert shown.text == (await read(client, link.uri)).text
        assert shown.meta is not None
        assert WHOLE.startswith(shown.text)
        assert READ_BYTES_MAX - 4 < len(shown.text.encode()) <= READ_BYTES_MAX
        rest = await read(client, f"{link.uri}?start={shown.meta['toolcell/end']}")
        assert shown.text + rest.text == WHOLE
        # A range that begins or ends within a character has whole ones only, and says which bytes they are.
        part = await read(client, f"{link.uri}?start=8&length=4")
        assert (part.text, part.meta) == ("ü", {"toolcell/start": 9, "toolcell/end": 11})
        beyond = await read(client, f"{link.uri}?start=999999999&length={10**17}")
        assert beyond.text == ""


@pytest.mark.anyio
async def test_an_id_is_completed(served: RunningDaemon, era: str) -> None:
    async with host(served, era) as client:
        await client.call_tool("kit_long")
        (listed,) = (await client.list_resources()).resources

        async def completed(reference: Any, name: str, value: str) -> list[str]:
            return (await client.complete(reference, {"name": name, "value": value})).completion.values

        ours = types.ResourceTemplateReference(uri=TEMPLATE)
        assert await completed(ours, "output_id", listed.name[:4]) == [listed.name]
        assert await completed(ours, "output_id", "") == [listed.name]
        assert await completed(ours, "output_id", "o-none") == []
        assert await completed(ours, "start", "") == []
        assert await completed(types.ResourceTemplateReference(uri="x://{output_id}"), "output_id", "") == []
        assert await completed(types.PromptReference(name="output"), "output_id", "") == []


URIS_OF_NOTHING = (
    "",
    "x",
    "file:///etc/passwd",
    URI,
    f"{URI}o-00000000000000000000000000000000",
    f"{URI}../../etc/passwd",
    f"{URI}o-ü",
    f"{URI}o-1?start=-1",
    f"{URI}o-1?length=0",
    f"{URI}o-1?length=x",
    f"{URI}o-1?start={'9' * 5000}",
    f"{URI}o-1?more=1",
    f"{URI}o-1#part",
    "toolcell://[::1",
    "toolcell://output/" + "o" * 100_000,
)


@pytest.mark.anyio
async def test_what_is_no_output_is_an_error(served: RunningDaemon) -> None:
    async with host(served, "2026-07-28") as client:
        for uri in URIS_OF_NOTHING:
            with pytest.raises(MCPError) as refused:
                await client.read_resource(uri)
            assert refused.value.error.code == types.INVALID_PARAMS, uri
            assert refused.value.error.data == {"uri": uri}
        assert text(await client.call_tool("kit_long", {"lines": 1})).startswith("000000")


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["opencode", "mcp", "mistral-vibe", "anything"])
async def test_a_host_that_is_not_known_to_take_links_gets_the_note_alone(
    served: RunningDaemon, name: str
) -> None:
    info = types.Implementation(name=name, version="1")
    async with host(served, "legacy", client_info=info) as client:
        cut = await client.call_tool("kit_long")
        assert {block.type for block in cut.content} == {"text"}
        assert "toolcell_read_output(output_id=" in "".join(
            getattr(block, "text", "") for block in cut.content
        )
        assert len((await client.list_resources()).resources) == 1


@pytest.mark.anyio
async def test_a_subscription_to_a_resource_is_neither_offered_nor_taken(served: RunningDaemon) -> None:
    async with host(served, "legacy") as client:
        assert client.server_capabilities.resources == types.ResourcesCapability(
            subscribe=False, list_changed=True
        )
        with pytest.warns(MCPDeprecationWarning), pytest.raises(MCPError) as refused:
            await client.subscribe_resource("toolcell://output/o-1")  # pyright: ignore[reportDeprecated]  # hosts do it
        assert refused.value.error.code == types.METHOD_NOT_FOUND
    async with host(served, "2026-07-28") as client:
        watched = ["toolcell://output/o-1"]
        async with client.listen(tools_list_changed=True, resource_subscriptions=watched) as subscription:
            assert subscription.honored == types.SubscriptionFilter(tools_list_changed=True)


def output(number: int, seconds: float | None = 60) -> Output:
    expires = datetime.now(UTC) + timedelta(seconds=seconds) if seconds is not None else None
    return Output(f"o-{number}", 10, 1, 10, True, expires, "result")


def test_the_list_is_bounded_and_without_those_that_expired() -> None:
    kept = KeptOutputs()
    for number in range(OUTPUTS_MAX + 1):
        kept.add(output(number, -1 if number % 2 else None if number % 4 else 60), "t")
    names = [resource.name for resource in kept.listed()]
    assert names == [f"o-{number}" for number in range(OUTPUTS_MAX, 0, -2)]
    kept.clear()
    assert kept.listed() == []
