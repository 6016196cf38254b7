"""What a tool asks a host of `toolcell mcp` for itself: its own form, a completion of the model, the roots."""

from __future__ import annotations

from typing import Any

import pytest
from mcp import MCPError, types
from tests.adapters.test_mcp_bridge import host, text
from tests.daemons import RunningDaemon

from toolcell import ToolError
from toolcell.adapters.mcp.convert import REQUESTS_MAX, requests_of

TOOLS = '''
import json
from toolcell import ToolContext, ToolError, tool

FORM = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "default": 30}}}

@tool
async def asks(context: ToolContext) -> str:
    """Ask the person, the model and the host, together."""
    said = await context.request(
        "mcp.input",
        who={"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": FORM}},
        words={"method": "sampling/createMessage", "params": {
            "messages": [{"role": "user", "content": {"type": "text", "text": "Greet"}}], "maxTokens": 9}},
        roots={"method": "roots/list"},
    )
    return json.dumps(said, sort_keys=True)

@tool
async def requests(requests: dict[str, object], context: ToolContext) -> str:
    """Ask for anything."""
    return json.dumps(await context.request("mcp.input", **requests))

@tool
async def halves(context: ToolContext) -> str:
    """Ask with half a character."""
    said = {"role": "user", "content": {"type": "text", "text": "\\ud800"}}
    words = {"method": "sampling/createMessage", "params": {"messages": [said], "maxTokens": 9}}
    return json.dumps(await context.request("mcp.input", words=words))

@tool
async def manages(context: ToolContext) -> str:
    """Do without the model where there is none."""
    try:
        await context.request("mcp.input", words={"method": "sampling/createMessage", "params": {
            "messages": [], "maxTokens": 9}})
    except ToolError as error:
        return f"alone: {error}"
    return "helped"
'''
FORM = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
SAMPLING: dict[str, Any] = {
    "messages": [{"role": "user", "content": {"type": "text", "text": "Greet"}}],
    "maxTokens": 9,
}

pytestmark = [pytest.mark.anyio, pytest.mark.sampled("era")]


@pytest.fixture
def served(daemon: RunningDaemon) -> RunningDaemon:
    """A daemon, and a project with tools that ask."""
    daemon.tool("kit", TOOLS)
    return daemon


@pytest.fixture(params=["legacy", "2026-07-28"])
def era(request: pytest.FixtureRequest) -> str:
    """The protocol that the host speaks."""
    mode: str = request.param
    return mode


async def model(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    """The host's model."""
    assert (params.max_tokens, params.tools, params.include_context) == (9, None, None)
    return types.CreateMessageResult(
        role="assistant", content=types.TextContent(text="Hail"), model="small", stop_reason="endTurn"
    )


async def test_a_tool_asks_the_person_the_model_and_the_host(served: RunningDaemon, era: str) -> None:
    forms: list[tuple[str, dict[str, Any]]] = []

    async def person(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        forms.append((params.message, params.requested_schema["properties"]))
        return types.ElicitResult(action="accept", content={"name": "Ada", "age": 36})

    async def roots(context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root.model_validate({"uri": f"file://{served.project}"})])

    async with host(
        served, era, elicitation_callback=person, sampling_callback=model, list_roots_callback=roots
    ) as client:
        said = text(await client.call_tool("kit_asks"))
    assert said == (
        f'{{"roots": {{"roots": [{{"uri": "file://{served.project}"}}]}}, '
        '"who": {"action": "accept", "content": {"age": 36, "name": "Ada"}}, '
        '"words": {"content": {"text": "Hail", "type": "text"}, "model": "small", "role": "assistant", '
        '"stopReason": "endTurn"}}'
    )
    assert forms == [
        ("kit_asks: Who?", {"name": {"type": "string"}, "age": {"type": "integer", "default": 30}})
    ]


async def test_a_person_may_decline_and_the_model_may_be_refused(served: RunningDaemon) -> None:
    async def person(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="decline")

    async def refusing(context: Any, params: types.CreateMessageRequestParams) -> types.ErrorData:
        return types.ErrorData(code=-1, message="the person says no")

    async with host(served, "legacy", elicitation_callback=person, sampling_callback=refusing) as client:
        form = {"who": {"method": "elicitation/create", "params": FORM}}
        assert text(await client.call_tool("kit_requests", {"requests": form})) == (
            '{"who": {"action": "decline"}}'
        )
        words = {"words": {"method": "sampling/createMessage", "params": SAMPLING}}
        refused = await client.call_tool("kit_requests", {"requests": words})
    assert refused.is_error
    assert "the person says no" in text(refused)


async def test_what_a_host_has_not_declared_is_not_asked_for(served: RunningDaemon, era: str) -> None:
    async with host(served, era) as client:
        assert text(await client.call_tool("kit_manages")).endswith(
            "has not declared the capability sampling"
        )
        words = {"words": {"method": "sampling/createMessage", "params": SAMPLING}}
        if era == "legacy":
            refused = await client.call_tool("kit_requests", {"requests": words})
            assert refused.is_error
            assert "has not declared the capability sampling" in text(refused)
            return
        with pytest.raises(MCPError) as missing:
            await client.call_tool("kit_requests", {"requests": words})
    assert missing.value.error.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
    assert missing.value.error.data == {"requiredCapabilities": {"sampling": {}}}
    assert "has not declared the capability sampling" in missing.value.error.message


async def test_an_answer_to_something_else_is_none_and_the_question_is_put_again(
    served: RunningDaemon,
) -> None:
    async def person(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        pytest.fail("the test answers")

    async with host(served, "2026-07-28", elicitation_callback=person) as client:
        session = client.session
        arguments = {"requests": {"who": {"method": "elicitation/create", "params": FORM}}}
        asked = await session.call_tool("kit_requests", arguments, allow_input_required=True)
        for wrong in (
            {"who": types.ListRootsResult(roots=[])},
            {"other": types.ElicitResult(action="cancel")},
        ):
            assert isinstance(asked, types.InputRequiredResult)
            assert asked.input_requests is not None
            assert list(asked.input_requests) == ["who"]
            asked = await session.call_tool(
                "kit_requests",
                arguments,
                input_responses={**wrong},
                request_state=asked.request_state,
                allow_input_required=True,
            )
        assert isinstance(asked, types.InputRequiredResult)
        done = await session.call_tool(
            "kit_requests",
            arguments,
            input_responses={"who": types.ElicitResult(action="cancel")},
            request_state=asked.request_state,
        )
    assert text(done) == '{"who": {"action": "cancel"}}'


async def test_the_bridge_serves_on_after_requests_that_are_none(served: RunningDaemon, era: str) -> None:
    async with host(served, era, sampling_callback=model) as client:
        for wrong in ({}, {"a": "roots/list"}, {"question-1": {"method": "ping"}}):
            assert (await client.call_tool("kit_requests", {"requests": wrong})).is_error
        assert '"Hail"' in text(await client.call_tool("kit_halves"))  # with a whole one in its place
        words = {"words": {"method": "sampling/createMessage", "params": SAMPLING}}
        assert '"Hail"' in text(await client.call_tool("kit_requests", {"requests": words}))


@pytest.mark.parametrize(
    ("requests", "said"),
    [
        ({}, "takes 1 to"),
        ({str(number): {"method": "roots/list"} for number in range(REQUESTS_MAX + 1)}, "takes 1 to"),
        ({"": {"method": "roots/list"}}, "printable characters"),
        ({"a" * 65: {"method": "roots/list"}}, "printable characters"),
        ({"a\n": {"method": "roots/list"}}, "printable characters"),
        ({"a": None}, "a needs a method"),
        ({"a": {"method": ["roots/list"]}}, "a needs a method"),
        ({"a": {"method": "tools/call", "params": {}}}, "a needs a method"),
        ({"a": {"method": "elicitation/create"}}, "a is no elicitation/create: params"),
        (
            {"a": {"method": "elicitation/create", "params": {**FORM, "requestedSchema": {}}}},
            "a requestedSchema with properties",
        ),
        (
            {
                "a": {
                    "method": "elicitation/create",
                    "params": {
                        **FORM,
                        "requestedSchema": {"type": "object", "properties": {"b": {"type": "object"}}},
                    },
                }
            },
            "the type of 'b' should be one of string",
        ),
        (
            {
                "a": {
                    "method": "elicitation/create",
                    "params": {
                        "mode": "url",
                        "message": "m",
                        "url": "https://example.org",
                        "elicitationId": "e",
                    },
                }
            },
            "a form has a requestedSchema",
        ),
        (
            {"a": {"method": "elicitation/create", "params": {**FORM, "message": "\ud800"}}},
            "half a character",
        ),
        ({"a": {"method": "sampling/createMessage", "params": {"messages": 1}}}, "params.messages"),
        ({"a": {"method": "sampling/createMessage", "params": {**SAMPLING, "tools": []}}}, "no tools here"),
    ],
)
def test_what_is_no_request_is_refused_with_the_reason(requests: dict[str, object], said: str) -> None:
    with pytest.raises(ToolError) as refused:
        requests_of("tool", requests)
    assert said in str(refused.value)


def test_only_the_completion_is_asked_for() -> None:
    more = {**SAMPLING, "includeContext": "allServers", "task": {"ttl": 1}}
    (request,) = requests_of("tool", {"a": {"method": "sampling/createMessage", "params": more}}).values()
    sent = request.model_dump(by_alias=True, mode="json", exclude_none=True)
    assert sent == {"method": "sampling/createMessage", "params": SAMPLING}
