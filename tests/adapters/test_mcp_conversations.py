"""Conversations of hosts with `toolcell mcp`, held against the SDK's own server message by message.

Each is played twice, to our loop and to the SDK with the same handlers (`mcp_reference`), and what was said must be the
same: rare messages between hot ones, mistakes, and what no host should send.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import pytest
from mcp import types
from tests.adapters.mcp_reference import Script, sdk_serves
from tests.adapters.test_mcp_bridge import SECONDS_MAX
from tests.daemons import RunningDaemon

from toolcell.adapters.mcp import HostContext, HostLink, Kernel, StdioServer
from toolcell.adapters.mcp.kernel import line_of
from toolcell.adapters.mcp.stdio.conversation import Conversation, Exchange
from toolcell.adapters.mcp.stdio.wire import MODERN_VERSION, result
from toolcell.adapters.mcp.tool_call import ToolCall
from toolcell.adapters.pipes import LineTooLong

pytestmark = [pytest.mark.anyio, pytest.mark.sampled("era")]

TOOLS = '''
import asyncio
import gc
import json
from toolcell import File, Link, ToolContext, ToolError, ToolResult, tool

@tool
def count(text: str) -> int:
    """Count the words."""
    return len(text.split())

@tool
def fails() -> None:
    """Fail."""
    raise ToolError("the printer is on fire")

@tool
def files() -> ToolResult:
    """What is no text."""
    return ToolResult([File(data=b"ID3", mime_type="audio/mpeg"), File(data=b"%PDF", name="a.pdf"), Link("https://x.test")])

@tool
def odd() -> dict[str, object]:
    """What JSON can say and UTF-8 cannot, and much else."""
    return {"text": "\\u00fc\\U0001f600\\u2028", "deep": [[[[None, True, 1.5e300]]]], "": ""}

@tool
def told(context: ToolContext) -> str:
    """Progress and records."""
    context.progress(1, 2, "half")
    context.log.info("a record")
    context.log.debug("not wanted")
    return "done"

@tool
async def held(context: ToolContext) -> str:
    """Wait."""
    context.progress(1, None, "waits")
    await asyncio.sleep(600)
    return "never"

@tool
async def asks(context: ToolContext) -> str:
    """Ask the host's model."""
    said = await context.request("mcp.input", words={"method": "sampling/createMessage", "params": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "Greet"}}], "maxTokens": 9}})
    return json.dumps(said, sort_keys=True)
'''
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
SAID = {"role": "assistant", "content": {"type": "text", "text": "Hail"}, "model": "small"}

Play = Callable[["Host"], Awaitable[None]]


@pytest.fixture
def served(daemon: RunningDaemon) -> RunningDaemon:
    """A daemon, and a project with the tools."""
    daemon.tool("kit", TOOLS)
    daemon.describe()
    return daemon


class Words:
    """The messages of a host that speaks one of the protocols."""

    def __init__(self, era: str) -> None:
        self.modern = era == MODERN_VERSION
        self.era = era

    def message(self, method: str, number: object, **params: Any) -> dict[str, Any]:
        """A request in its protocol."""
        if self.modern:
            meta: dict[str, Any] = {
                "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
                "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {"sampling": {}, "elicitation": {}},
            }
            params = {**params, "_meta": {**meta, **params.get("_meta", {})}}
        return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}

    def call(self, number: object, tool: str, arguments: object = None, **meta: Any) -> dict[str, Any]:
        """A call of a tool."""
        more = {} if arguments is None else {"arguments": arguments}
        return self.message("tools/call", number, name=f"kit_{tool}", **more, _meta=meta)

    def shake(self, **more: Any) -> dict[str, Any]:
        """The handshake."""
        able: dict[str, Any] = {"sampling": {}, "elicitation": {}, **more}
        params: dict[str, Any] = {
            "protocolVersion": self.era,
            "capabilities": able,
            "clientInfo": {"name": "test", "version": "1"},
        }
        return {"jsonrpc": "2.0", "id": "shake", "method": "initialize", "params": params}


class Host(Words):
    """A host over a script."""

    def __init__(self, era: str, script: Script, daemon: RunningDaemon) -> None:
        super().__init__(era)
        self.script = script
        self.daemon = daemon
        self.count = 0

    async def begin(self) -> None:
        """What a host says first."""
        if self.modern:
            await self.ask(self.message("server/discover", "discover"))
        else:
            await self.ask(self.shake())
            self.script.add(INITIALIZED)
        await self.ask(self.message("tools/list", "list"))

    async def ask(self, *requests: dict[str, Any]) -> list[dict[str, Any]]:
        """Send requests and wait for their answers."""
        self.script.add(*requests)
        return await self.script.answers(*(request["id"] for request in requests))

    async def settle(self) -> None:
        """Wait until everything before has been read, and answered where no tool is called for it."""
        for _ in range(3):
            self.count += 1
            await self.ask(self.message("ping", f"ping-{self.count}"))

    async def hear(self, method: str) -> dict[str, Any]:
        """Wait for the newest message of a method."""
        while True:
            found: list[dict[str, Any]] = [said for said in self.script.said if said.get("method") == method]
            if found:
                return found[-1]
            self.script.heard.clear()
            await self.script.heard.wait()


@asynccontextmanager
async def ours(place: HostContext, link: HostLink, script: Script) -> AsyncGenerator[None]:
    """Within: our loop serves a script."""
    async with asyncio.TaskGroup() as group:
        group.create_task(StdioServer(place, link, script).serve(lambda: Kernel))
        yield
        script.end()


async def played(daemon: RunningDaemon, era: str, play: Play) -> tuple[list[Any], list[Any]]:
    """What was said in both, in order but for what has none: answers to requests that were open at the same time."""
    both: list[list[Any]] = []
    for road in (ours, sdk_serves):
        script = Script()
        place = HostContext("s", str(daemon.project), "/")
        async with asyncio.timeout(SECONDS_MAX), road(place, HostLink(daemon.socket, "running"), script):
            await play(Host(era, script, daemon))
        both.append(
            sorted((plain(each) for each in script.said), key=lambda each: json.dumps(each, sort_keys=True))
        )
    assert len(both[0]) > 0
    return both[0], both[1]


def plain(value: Any) -> Any:
    """A message without what differs from one session to the next."""
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        return {name: "…" if name == "requestState" else plain(each) for name, each in found.items()}
    return list(map(plain, value)) if isinstance(value, list) else value  # pyright: ignore[reportUnknownArgumentType]


ERAS = ["2025-11-25", MODERN_VERSION]


async def rare(host: Host) -> None:
    await host.begin()
    for method, params in (
        ("prompts/list", {}),
        ("resources/list", {}),
        ("resources/templates/list", {}),
        ("resources/read", {"uri": "toolcell://output/none"}),
        ("resources/subscribe", {"uri": "toolcell://output/none"}),
        ("logging/setLevel", {"level": "debug"}),
        ("logging/setLevel", {"level": "loud"}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "a"}, "argument": {"name": "b", "value": ""}}),
        ("tools/list", {"cursor": "next"}),
        ("tools/list", {}),
        ("server/discover", {}),
        ("nothing/of/the/kind", {}),
        ("ping", {}),
    ):  # fmt: skip
        host.count += 1
        await host.ask(host.message(method, host.count, **params))
        await host.ask(host.call(f"call-{host.count}", "count", {"text": "a b"}))


async def results(host: Host) -> None:
    await host.begin()
    for tool, arguments in (
        ("count", {"text": "a"}), ("count", {"text": 1}), ("count", {}), ("count", None), ("count", {"more": 1}),
        ("fails", {}), ("files", {}), ("odd", {}), ("none", {}), ("told", None),
    ):  # fmt: skip
        host.count += 1
        await host.ask(host.call(host.count, tool, arguments))
    level = {"io.modelcontextprotocol/logLevel": "debug"} if host.modern else {}
    await host.ask(host.call("told", "told", {}, progressToken="token", **level))
    await host.ask(host.call("traced", "count", {"text": ""}, traceparent="00-0-0-01"))
    await host.ask(host.message("tools/call", "cut", name="toolcell_read_output", arguments={"id": "none"}))


async def sampled(host: Host) -> None:
    await host.begin()
    host.script.add(host.call("asks", "asks", {}))
    if host.modern:
        (asked,) = await host.script.answers("asks")
        state = asked["result"]["requestState"]
        again = host.call("again", "asks", {})
        again["params"] |= {"requestState": state, "inputResponses": {"words": SAID}}
        await host.ask(again)
        forged = host.call("forged", "asks", {})
        forged["params"] |= {"requestState": "x", "inputResponses": {}}
        await host.ask(forged)
        return
    asked = await host.hear("sampling/createMessage")
    await host.ask(host.message("ping", "between"), host.call("other", "count", {"text": ""}))
    host.script.add({"jsonrpc": "2.0", "id": str(asked["id"]), "result": SAID})
    await host.script.answers("asks")
    for answer in ({"error": {"code": -1, "message": "no", "data": [1]}}, {"result": {"no": "words"}}):
        host.count += 1
        before = len(host.script.said)
        host.script.add(host.call(host.count, "asks", {}))
        await host.script.until(before + 1)
        host.script.add({"jsonrpc": "2.0", "id": host.script.said[-1]["id"], **answer})
        await host.script.answers(host.count)


async def changed(host: Host) -> None:
    await host.begin()
    if host.modern:
        wanted = {"toolsListChanged": True, "promptsListChanged": True}
        host.script.add(host.message("subscriptions/listen", "listen", notifications=wanted))
        await host.hear("notifications/subscriptions/acknowledged")
    host.daemon.tool(
        "new",
        f"from toolcell import tool\n@tool\ndef new() -> int:\n    '{os.urandom(4).hex()}'\n    return 1\n",
    )
    await asyncio.to_thread(host.daemon.reload)
    await host.hear("notifications/tools/list_changed")
    host.daemon.tool("new", "from toolcell import tool\n@tool\ndef new() -> int:\n    'New.'\n    return 1\n")
    await asyncio.to_thread(host.daemon.reload)
    await host.ask(host.message("tools/list", "later"))
    (host.daemon.project / ".toolcell" / "tools" / "new.py").unlink()
    await asyncio.to_thread(host.daemon.reload)


async def cancelled(host: Host) -> None:
    await host.begin()
    host.script.add(host.call("held", "held", {}, progressToken=7))
    await host.hear("notifications/progress")
    # One that runs, one that has not begun, one that is none of these, and one under the same number as a text.
    host.script.add(host.call(8, "held", {}), {**CANCEL, "params": {"requestId": "8"}})
    host.script.add({**CANCEL, "params": {"requestId": "held", "reason": "enough"}})
    host.script.add(
        {**CANCEL, "params": {"requestId": "none"}}, {**CANCEL, "params": {"requestId": [1]}}, CANCEL
    )
    await host.settle()
    await host.ask(host.call("after", "count", {"text": "a"}))


async def hundred(host: Host) -> None:
    await host.begin()
    # The one that is cancelled waits or is held, so that its answer cannot come before the cancellation.
    calls = [host.call(number, "count", {"text": "a " * number}) for number in range(99)]
    host.script.add(*calls, host.call(99, "held", {}), {**CANCEL, "params": {"requestId": 99}})
    await host.script.answers(*range(99))
    await host.settle()


async def closed(host: Host) -> None:
    await host.begin()
    host.script.add(host.call("held", "held", {}, progressToken=7))
    await host.hear("notifications/progress")
    host.script.add(host.call("late", "held", {}), host.message("resources/list", "rare"))
    await host.script.answers("rare")


CANCEL: dict[str, Any] = {"jsonrpc": "2.0", "method": "notifications/cancelled"}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    "play", [rare, results, sampled, changed, cancelled, hundred, closed], ids=lambda play: play.__name__
)
async def test_a_host_is_answered_as_by_the_sdk(served: RunningDaemon, era: str, play: Play) -> None:
    loop, sdk = await played(served, era, play)
    if play is changed:  # how many notifications two changes make is a matter of time
        loop, sdk = ([each for each in said if "id" in each] for said in (loop, sdk))
    assert loop == sdk


HOSTILE: list[bytes | Exception] = [
    b"hello?\n", b"\n", b"   \n", b"\xff\xfe\n", b"\0\n", b"{\n", b"[" * 100_000 + b"\n", b'{"a":' * 100_000 + b"\n",
    b"[]\n", b"[1]\n", b"null\n", b"1\n", b'"text"\n', b"{}\n", b"NaN\n",
    b'[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]\n',
    b'{"jsonrpc":"1.0","id":3,"method":"ping"}\n', b'{"id":3,"method":"ping"}\n', b'{"jsonrpc":"2.0","id":3}\n',
    b'{"jsonrpc":"2.0","id":null,"method":"ping"}\n', b'{"jsonrpc":"2.0","id":true,"method":"ping"}\n',
    b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}\n', b'{"jsonrpc":"2.0","id":[],"method":"ping"}\n',
    b'{"jsonrpc":"2.0","id":1180591620717411303424,"method":"ping"}\n', b'{"jsonrpc":"2.0","id":"","method":"ping"}\n',
    b'{"jsonrpc":"2.0","id":3,"method":7}\n', b'{"jsonrpc":"2.0","id":3,"method":"ping","params":[]}\n',
    b'{"jsonrpc":"2.0","id":3,"method":"ping","params":null}\n', b'{"jsonrpc":"2.0","id":3,"method":"ping","more":1}\n',
    b'{"jsonrpc":"2.0","id":3,"method":"ping","params":{"_meta":7}}\n',
    b'{"jsonrpc":"2.0","id":3,"method":"ping","id":4,"id":5}\n',
    b'{"jsonrpc":"2.0","id":3,"method":"\\ud800"}\n', b'{"jsonrpc":"2.0","id":"\\ud83d\\ude00","method":"ping"}\n',
    b'{"jsonrpc":"2.0","id":1,"result":{}}\n', b'{"jsonrpc":"2.0","id":1,"result":null}\n',
    b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}\n', b'{"jsonrpc":"2.0","id":9,"error":{}}\n',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":true}}\n',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":[]}\n',
    b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":"x"}}\n',
    b'{"jsonrpc":"2.0","method":"notifications/roots/list_changed","params":{"_meta":[]}}\n',
    b'{"jsonrpc":"2.0","method":"notifications/none"}\n',
    LineTooLong("A line has at most so many bytes."),
]  # fmt: skip
WRONG: list[Any] = [
    {}, {"name": 1}, {"name": None}, {"name": "kit_count", "arguments": []}, {"name": "kit_count", "arguments": "x"},
    {"name": "kit_count", "arguments": {"text": "\ud800"}}, {"name": "\ud800"}, {"name": "kit_count", "more": 1},
    {"name": "kit_count", "arguments": {"text": "a"}, "task": {"ttl": 1}}, {"name": "kit_count", "requestState": 1},
    {"name": "kit_count", "arguments": {"text": "a"}, "_meta": {"progressToken": 1.5}},
    {"name": "kit_count", "arguments": {"text": "a"}, "_meta": {"progressToken": None}},
    {"name": "kit_count", "arguments": {"text": "a"}, "_meta": {"progressToken": True}},
    {"name": "kit_count", "arguments": {"text": "a"}, "_meta": {"io.modelcontextprotocol/logLevel": "loud"}},
    {"name": "kit_count", "arguments": {"text": "a"}, "_meta": {"io.modelcontextprotocol/clientInfo": 7}},
]  # fmt: skip


async def hostile(host: Host) -> None:
    await host.begin()
    for line in HOSTILE:
        host.script.add(line)
        await host.settle()
    for params in WRONG:
        host.count += 1
        before = len(host.script.said)
        host.script.add(host.message("tools/call", f"wrong-{host.count}", **params))
        await host.script.until(before + 1)
    twice = [
        host.call(7, "count", {"text": "a"}),
        host.call(7, "count", {"text": "a"}),
        host.call("7", "count", {}),
    ]
    before = len(host.script.said)
    host.script.add(*twice)
    await host.script.until(before + 3)
    await host.ask(host.call("after", "count", {"text": "a b c"}))


@pytest.mark.parametrize("era", ERAS)
async def test_what_no_host_should_send_is_answered_as_by_the_sdk(served: RunningDaemon, era: str) -> None:
    loop, sdk = await played(served, era, hostile)
    assert loop == sdk


def openings() -> dict[str, Sequence[Any]]:
    """How a host may begin, in ways that settle the protocol otherwise."""
    old, new = Words("2025-11-25"), Words(MODERN_VERSION)
    bare: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    call = old.call(3, "count", {"text": "a"})
    strange = old.shake(experimental={"x": {}}, more={"y": 1})
    unknown, wrong = old.shake(), old.shake()
    unknown["params"]["protocolVersion"] = "1999-01-01"
    wrong["params"] = {"capabilities": 7}
    half, other = new.message("tools/list", 1), new.message("tools/list", 1)
    del half["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
    other["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2099-01-01"
    discover: dict[str, Any] = {"jsonrpc": "2.0", "id": 5, "method": "server/discover"}
    return {
        "bare ping": [{**bare, "method": "ping"}, old.shake(), call],
        "bare list": [bare, old.shake(), INITIALIZED, call],
        "call before the handshake": [call, old.shake(), {**call, "id": 4}],
        "initialized alone": [INITIALIZED, bare, call],
        "envelope first": [
            new.message("tools/list", 1),
            old.shake(),
            bare,
            new.call(2, "count", {"text": "a"}),
        ],
        "rare envelope first": [new.message("prompts/list", 1), wrong, new.call(2, "count", {"text": "a"})],
        "handshake, then envelope": [old.shake(), new.call(2, "count", {"text": "a"}), call, discover],
        "handshake twice": [old.shake(), {**old.shake(), "id": 9}, INITIALIZED, call],
        "strange handshake": [strange, INITIALIZED, bare, call],
        "unknown version": [unknown, INITIALIZED, call],
        "wrong handshake": [wrong, call, old.shake(), {**call, "id": 4}],
        "half an envelope": [half, new.call(2, "count", {"text": "a"}), old.shake()],
        "version that is not there": [other, new.call(2, "count", {"text": "a"})],
        "garbage first": [b"hello?\n", old.shake(), INITIALIZED, call],
    }


OPENINGS = openings()


@pytest.mark.parametrize("name", list(OPENINGS))
async def test_the_first_messages_settle_the_protocol_as_by_the_sdk(served: RunningDaemon, name: str) -> None:
    async def play(host: Host) -> None:
        for each in OPENINGS[name]:
            before = len(host.script.said)
            host.script.add(each)
            if each is not INITIALIZED:
                await host.script.until(before + 1)

    loop, sdk = await played(served, "2025-11-25", play)
    assert loop == sdk


async def test_half_a_character_in_a_result_becomes_a_whole_one() -> None:
    script = Script()
    async with asyncio.timeout(SECONDS_MAX), Conversation(script) as conversation:

        async def work(exchange: Exchange) -> dict[str, Any]:
            return {"text": "a\ud800b"}

        conversation.begin(Exchange(conversation, 1), work)
        await script.answers(1)
    assert script.said == [{"jsonrpc": "2.0", "id": 1, "result": {"text": "a?b"}}]


@pytest.mark.parametrize("depth", [1, 300])
@pytest.mark.parametrize("text", ['ü\U0001f600\u2028\x1f\x7f/"', "a\ud800b"])
async def test_the_line_of_a_call_has_what_that_of_another_request_has(text: str, depth: int) -> None:
    value: Any = {text: [1.5e300, 10**30, -0.0, None, True]}
    for _ in range(depth):
        value = [value]
    line = line_of("7", {"content": [], "structuredContent": {"result": value}})
    assert line.count(b"\n") == 1
    assert json.loads(line) == json.loads(
        result("7", {"content": [], "structuredContent": {"result": value}})
    )


async def test_requests_that_came_with_the_end_are_answered_as_closed() -> None:
    script = Script()
    async with asyncio.timeout(SECONDS_MAX):
        async with Conversation(script) as conversation:

            async def work(exchange: Exchange) -> dict[str, Any]:
                await asyncio.Event().wait()
                return {}

            for number in range(3):
                conversation.begin(Exchange(conversation, number), work)
            assert conversation.cancel(2)
    assert sorted(each["id"] for each in script.said) == [0, 1]  # their tasks end in any order
    assert {each["error"]["code"] for each in script.said} == {types.CONNECTION_CLOSED}


async def test_a_result_that_is_nested_too_deeply_to_be_written_is_an_error_of_its_request() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    script = Script()
    async with asyncio.timeout(SECONDS_MAX), Conversation(script) as conversation:

        async def work(exchange: Exchange) -> dict[str, Any]:
            return {"deep": deep if exchange.id == 1 else []}

        for number in range(1, 3):
            conversation.begin(Exchange(conversation, number), work)
        first, second = await script.answers(1, 2)
    assert (first["error"]["code"], second["result"]) == (types.INTERNAL_ERROR, {"deep": []})
    while deep:
        deep = deep.pop()


async def test_a_request_that_is_held_has_no_task_and_is_answered_aborted_or_closed() -> None:
    script, aborted = Script(), list[int]()
    async with asyncio.timeout(SECONDS_MAX):
        async with Conversation(script) as conversation:

            async def follow(exchange: Exchange) -> dict[str, Any]:
                await asyncio.Event().wait()
                return {}

            tasks = len(asyncio.all_tasks())
            held = [Exchange(conversation, number) for number in range(4)]
            for number, exchange in enumerate(held):
                conversation.hold(exchange, partial(aborted.append, number), follow)
            conversation.answer(held[0], result(0, {}))
            assert conversation.cancel(1)
            conversation.answer(held[1], result(1, {}))
            assert not conversation.cancel(1)
            conversation.begin(held[2], follow)
            assert len(asyncio.all_tasks()) == tasks + 1
        assert aborted == [1]
    assert [each["id"] for each in script.said[:1]] == [0]
    assert sorted((each["id"], each["error"]["code"]) for each in script.said[1:]) == [
        (2, types.CONNECTION_CLOSED),
        (3, types.CONNECTION_CLOSED),
    ]


async def test_a_call_that_has_ended_leaves_nothing_to_the_garbage_collector(served: RunningDaemon) -> None:
    script = Script()
    place = HostContext("s", str(served.project), "/")
    async with asyncio.timeout(SECONDS_MAX), ours(place, HostLink(served.socket, "running"), script):
        host = Host(MODERN_VERSION, script, served)
        await host.begin()
        await host.ask(host.call("first", "count", {"text": ""}, progressToken=1))
        gc.collect()
        gc.disable()
        try:
            for number in range(20):
                await host.ask(host.call(number, "count", {"text": ""}))
            left = [each for each in gc.get_objects() if isinstance(each, ToolCall | Exchange)]
        finally:
            gc.enable()
    assert len(left) < 5, left  # the newest ones, not all twenty
