"""Tools that exist in Python and in TypeScript, by one table: each ending is stated once and holds for every worker.

tests/tools/both/NAME.py and NAME.ts are one tool. What only one of the languages has is tested beside: test_returns,
test_aborting, test_limits, test_typescript, tests/hostile.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from tests.daemons import RunningDaemon, renewed, running_daemon
from tests.engines import ENGINES

from toolcell.client import ImageData, Log, Outcome, ResourceLink, Session
from toolcell_proto.v1 import operator_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120), pytest.mark.sampled("of_kind")]

BOTH: Final = Path(__file__).parent.parent / "tools" / "both"
ENDINGS: Final = {"python": "py", "bun": "ts", "node": "ts"}
"""The kinds of worker, and which file of a pair each of them runs."""


class Worker(NamedTuple):
    """A kind of worker, in a daemon that has its engine alone."""

    kind: str
    daemon: RunningDaemon

    def add(self, tool: str) -> None:
        ending = ENDINGS[self.kind]
        shutil.copy(BOTH / f"{tool}.{ending}", self.daemon.project / ".toolcell" / "tools")


# Each kind takes some ten seconds, so the engines are left to the gate.
@pytest.fixture(
    scope="module",
    params=[
        "python",
        pytest.param("bun", marks=pytest.mark.slow),
        pytest.param("node", marks=pytest.mark.slow),
    ],
)
def of_kind(request: pytest.FixtureRequest) -> Iterator[Worker]:
    places = [str(ENGINES[request.param].parent)] if request.param in ENGINES else []
    path = ":".join([*places, "/usr/bin", "/bin"])
    with running_daemon(environment={"PATH": path, "TOOLCELL_TEST_SECRET": "hunter2"}) as daemon:
        yield Worker(request.param, daemon)


@pytest.fixture
def worker(of_kind: Worker) -> Iterator[Worker]:
    with renewed(of_kind.daemon):
        yield of_kind


def test_each_tool_is_there_in_both_languages() -> None:
    stems = {ending: {path.stem for path in BOTH.glob(f"*.{ending}")} for ending in ("py", "ts")}
    assert stems["py"] == stems["ts"]
    assert len(stems["py"]) == 8


# What is returned and raised

RETURNED: Final[dict[str, tuple[str, Any]]] = {
    "nothing": ("(no output)", None),
    "text": ("grüß dich", None),
    "empty_text": ("", None),
    "true": ("true", True),
    "integer": ("3", 3),
    "number": ("0.5", 0.5),
    "infinities": ('["Infinity","NaN"]', ["Infinity", "NaN"]),
    "object": ('{"b":1,"a":[null,"x"]}', {"b": 1, "a": [None, "x"]}),
    "list": ('[1,"two",[3.5]]', [1, "two", [3.5]]),
    "empty_list": ("[]", []),
    "set": ("[7]", [7]),
    "lone_surrogates": ("a\ufffdb", None),
    "lone_surrogates_inside": ('{"file":"a\ufffdb"}', {"file": "a\ufffdb"}),
    "nuls": ("a\0b\x1b[31mc", None),
    "proto": ('{"__proto__":{"x":1}}', {"__proto__": {"x": 1}}),
    "nested_200": ("[" * 201 + "]" * 201, json.loads("[" * 201 + "]" * 201)),
}
"""By kind of value: what the model reads, and the details."""
REFUSED: Final = ("holds_itself", "nested_100_000", "function", "breaks_off", "parts_257")
"""Values that are the tool's mistake."""
RAISED: Final = {
    "plain": "unknown sku X; known: A, B",
    "chained": "second",
    "without_message": "Error",
    "silent": "Silent",
    "huge": "xxx",
    "surrogates": "a\ufffdb",
    "exits": "3",
    "recursion": "maximum",
    "a_group": "one of them",
    "no_file": "file.txt",
}
"""By act: what the message of the error has in it."""
MESSAGE_CHARACTERS_MAX: Final = 4_100


async def called_twice(session: Session, tool: str, **arguments: object) -> Outcome:
    """Call a tool, and see that its worker serves the next call."""
    outcome = await session.call(tool, arguments)
    again = await session.call(tool, arguments)
    assert (again.kind, again.text) == (outcome.kind, outcome.text)
    assert again.facts.worker_id == outcome.facts.worker_id
    return outcome


@pytest.mark.slow
async def test_every_value_is_text_and_details(worker: Worker) -> None:
    worker.add("returns")
    async with worker.daemon.connect() as session:
        await session.described()
        for kind, (text, details) in RETURNED.items():
            outcome = await session.call("returns", {"kind": kind})
            assert (outcome.kind, outcome.text, outcome.details) == ("ok", text, details), kind
        for kind in REFUSED:
            outcome = await called_twice(session, "returns", kind=kind)
            assert (outcome.kind, outcome.ran) == ("tool_error", True), kind
            assert 10 < len(outcome.text) < MESSAGE_CHARACTERS_MAX, kind
        (picture,) = (await session.call("returns", {"kind": "picture"})).content
        assert picture == ImageData(bytes.fromhex("89504e470d0a1a0a"), "image/png")
        (link,) = (await session.call("returns", {"kind": "link"})).content
        assert link == ResourceLink("file:///tmp/x.txt", "x.txt", "text/plain")
        long = await session.call("returns", {"kind": "long"})
        assert "lines omitted]" in long.text
        assert long.output is not None
        assert long.output.bytes == 64_000


@pytest.mark.slow
async def test_every_exception_is_a_tool_error_of_one_short_message(worker: Worker) -> None:
    worker.add("raises")
    async with worker.daemon.connect() as session:
        await session.described()
        for kind, said in RAISED.items():
            outcome = await called_twice(session, "raises", kind=kind)
            assert (outcome.kind, outcome.ran) == ("tool_error", True), (kind, outcome)
            assert said.lower() in outcome.text.lower(), kind
            assert len(outcome.text) < MESSAGE_CHARACTERS_MAX, kind


# What is given

GIVEN: Final[tuple[tuple[dict[str, Any], dict[str, Any] | None], ...]] = (
    ({"n": 1}, {"n": 1, "text": "none", "unit": "m"}),
    ({"n": -3, "text": "", "unit": "s", "tags": []}, {"n": -3, "text": "", "unit": "s", "tags": []}),
    ({"n": 1, "text": "a\0\U0001f600"}, {"n": 1, "text": "a\0\U0001f600", "unit": "m"}),
    ({"n": 1, "tags": ["a", "b"]}, {"n": 1, "text": "none", "unit": "m", "tags": ["a", "b"]}),
    (
        {"n": 1, "free": {"": {"a": [None, 1.5]}}},
        {"n": 1, "text": "none", "unit": "m", "free": {"": {"a": [None, 1.5]}}},
    ),
    ({}, None),
    ({"n": "x"}, None),
    ({"n": 1.5}, None),
    ({"n": None}, None),
    ({"n": 1, "text": 5}, None),
    ({"n": 1, "unit": "km"}, None),
    ({"n": 1, "tags": "a"}, None),
    ({"n": 1, "tags": ["a", 5]}, None),
    ({"n": 1, "free": []}, None),
)
"""Arguments, and what the tool gets; None where it does not run."""


@pytest.mark.slow
async def test_arguments_are_read_with_their_defaults_or_named(worker: Worker) -> None:
    worker.add("takes")
    async with worker.daemon.connect() as session:
        await session.described()
        schema = session.catalog.tools["takes"].input_schema
        assert (schema["required"], schema["properties"]["unit"]["default"]) == (["n"], "m")
        for given, taken in GIVEN:
            outcome = await session.call("takes", given)
            if taken is not None:
                assert (outcome.kind, outcome.details) == ("ok", taken), given
                continue
            assert (outcome.kind, outcome.ran) == ("invalid_arguments", False), given
            assert (next(reversed(given), "n")) in outcome.text, given
            assert "the tool did not run" in outcome.text


# What stops

STOPPED: Final = {
    "listens": ("aborted", "settled", ""),
    "half": ("aborted", "settled", "half"),
    "child": ("aborted", "settled", ""),
    "children": ("aborted", "killed", ""),
    "deaf": ("aborted", "killed", ""),
}
"""By what the tool does: how its call ends when it is aborted, how it was stopped, and what it says."""


def running(word: str) -> list[int]:
    """The processes that have a word among their arguments."""
    found: list[int] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # it ended meanwhile
            if word in Path(f"/proc/{name}/cmdline").read_bytes().decode(errors="replace").split("\0"):
                found.append(int(name))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", STOPPED)
async def test_an_abort_stops_a_tool_and_leaves_nothing_of_it(worker: Worker, kind: str) -> None:
    worker.add("stops")
    grace = "500ms" if STOPPED[kind][1] == "killed" else "30s"
    worker.daemon.configure(f'\n[daemon]\nabort_grace = "{grace}"\n')
    mark = f"30.{os.getpid()}"
    async with worker.daemon.connect() as session:
        await session.described()
        call = session.call("stops", {"kind": kind, "mark": mark})
        async for event in call:
            if isinstance(event, Log):
                call.abort("not needed")
        outcome = await call
        text = "".join(getattr(part, "text", "") for part in outcome.content)
        assert (outcome.kind, outcome.stopped, text) == STOPPED[kind], outcome
        assert running(mark) == []
        assert (await session.call("stops", {"kind": "none"})).text == "whole"


# What is too much

EXCEEDED: Final[dict[str, tuple[str, str, str, str]]] = {
    "memory": ("memory", "400MiB", "limit_exceeded", "memory"),
    "processes": ("processes", "40", "limit_exceeded", "processes"),
    "cpu": ("cpu", "1s", "limit_exceeded", "cpu"),
    "time": ("timeout", "1s", "timed_out", ""),
    "file": ("file_size", "8MiB", "limit_exceeded", "file_size"),
}
"""By what is used: the limit, its value, the kind of the outcome and its cause."""


@pytest.mark.slow
@pytest.mark.parametrize("what", EXCEEDED)
async def test_a_limit_ends_a_call_and_is_named(worker: Worker, what: str) -> None:
    worker.add("uses")
    limit, value, kind, cause = EXCEEDED[what]
    worker.daemon.configure(f"\n[tool.uses]\n{limit} = {value if value.isdigit() else json.dumps(value)}\n")
    async with worker.daemon.connect() as session:
        await session.described()
        outcome = await session.call("uses", {"what": what})
        assert (outcome.kind, outcome.cause) == (kind, cause or outcome.cause), outcome
        assert f"toolcell config set tool.uses.{limit} " in outcome.message
        assert (await session.call("uses", {"what": "nothing"})).text == "survived"


@pytest.mark.slow
async def test_a_disk_that_was_full_is_named_when_it_is_empty_again(worker: Worker) -> None:
    worker.add("uses")
    worker.daemon.configure('\n[tool.uses]\ndisk = "8MiB"\nsandbox = "strict"\n')
    async with worker.daemon.connect() as session:
        await session.described()
        outcome = await session.call("uses", {"what": "disk"})
        if outcome.cause == "sandbox_unavailable":
            pytest.skip(outcome.message)
        assert (outcome.kind, outcome.cause) == ("limit_exceeded", "disk"), outcome
        assert "toolcell config set tool.uses.disk " in outcome.message


# What dies

DEATHS: Final = {
    "SIGKILL": "crashed",
    "SIGSEGV": "crashed",
    "SIGSTOP": "timed_out",
    "exits": "crashed",
    "closes": "crashed",
    "forges": "crashed",
}
"""By how the worker ends itself: how its call ends."""


@pytest.mark.parametrize(
    "how", [pytest.param(how, marks=[pytest.mark.slow] * (how == "SIGSTOP")) for how in DEATHS]
)
async def test_a_worker_that_ends_itself_costs_its_call_alone(worker: Worker, how: str) -> None:
    worker.add("dies")
    worker.daemon.configure('\n[tool.dies]\ntimeout = "3s"\n')
    worker.add("takes")
    async with worker.daemon.connect() as session:
        await session.described()
        outcome = await session.call("dies", {"how": how})
        assert (outcome.kind, outcome.ran) == (DEATHS[how], True), outcome
        assert (await session.call("takes", {"n": 1})).ok


# What attacks

SECRET: Final = "hunter2-of-another"


@pytest.fixture
def victim(worker: Worker) -> Iterator[dict[str, str]]:
    """What an attack is aimed at, by its name."""
    outside = worker.daemon.directory / "outside"
    outside.mkdir()
    kept = outside / "kept"
    kept.write_text(SECRET)
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield {
            "kept": str(kept),
            "planted": "/usr/toolcell-planted",
            "tool": str(worker.daemon.project / ".toolcell" / "tools" / "attacks.py"),
            "socket": worker.daemon.socket,
            "token": str(Path(worker.daemon.socket).parent / "operator.token"),
            "port": str(server.getsockname()[1]),
            "daemon": str(worker.daemon.pid),
            "": "",
        }


ATTACKED: Final = (
    ("reads", "kept"),
    ("reads", "token"),
    ("reads_through_a_program", "kept"),
    ("reads_through_a_link", "kept"),
    ("writes", "planted"),
    ("writes", "tool"),
    ("removes", "kept"),
    ("connects", "socket"),
    ("dials", "port"),
    ("signals", "daemon"),
    ("looks", "daemon"),
)
"""What is done, and to what."""


@pytest.mark.sampled
async def test_nothing_outside_of_the_cell_is_reached(worker: Worker, victim: dict[str, str]) -> None:
    worker.add("attacks")
    worker.daemon.config.write_text('trust = "all"\n[defaults]\nsandbox = "strict"\n')
    worker.daemon.reload()
    tools = sorted(path.read_bytes() for path in (worker.daemon.project / ".toolcell" / "tools").iterdir())
    async with worker.daemon.connect() as session:
        await session.described()
        for act, at in ATTACKED:
            outcome = await session.call("attacks", {"act": act, "at": victim[at]})
            assert outcome.kind == "tool_error", (act, at, outcome)
            assert SECRET not in repr(outcome)
            assert (at != "port") or "network" in outcome.message, outcome
        inherited = json.loads((await session.call("attacks", {"act": "inherits"})).text)
    assert not [name for name in inherited if name.startswith(("TOOLCELL", "XDG", "NOTIFY"))]
    assert Path(victim["kept"]).read_text() == SECRET
    assert not Path(victim["planted"]).exists()
    assert (
        sorted(path.read_bytes() for path in (worker.daemon.project / ".toolcell" / "tools").iterdir())
        == tools
    )


# What leaks

TOKEN: Final = 'hunter2-"quoted"-\\0123456789'
LEAKED: Final = {
    "prints": "ok",
    "returns": "ok",
    "long": "ok",
    "raises": "tool_error",
    "speaks": "ok",
    "dies": "crashed",
}
"""Where the secret is told, and how the call ends."""


def is_clean(text: str) -> bool:
    """Whether no spelling of the token is in a text."""
    return "hunter2" not in text and "0123456789" not in text


@pytest.mark.sampled
@pytest.mark.slow
async def test_a_secret_is_in_nothing_that_a_tool_says(worker: Worker) -> None:
    daemon = worker.daemon
    worker.add("leaks")
    (daemon.directory / "token").write_text(TOKEN)
    daemon.configure(
        f'\n[secrets]\nTOKEN = {{ file = "{daemon.directory}/token" }}\n[tool.leaks]\nsecrets = ["TOKEN"]\n'
    )
    async with daemon.connect() as session:
        await session.described()
        for where, kind in LEAKED.items():
            call = session.call("leaks", {"where": where})
            told = [repr(event) async for event in call]
            outcome = await call
            assert outcome.kind == kind, outcome
            everything = "".join([*told, repr(outcome.to_dict())])
            assert is_clean(everything), where
            assert "***" in everything, where
            kept = daemon.ask(
                "Operator/GetCall", operator_pb2.GetCallRequest(call_id=call.id), operator_pb2.GetCallResponse
            )
            assert is_clean(str(kept)), where
    for file in daemon.state.rglob("*"):
        if file.is_file():
            assert b"hunter2" not in file.read_bytes(), file
    assert is_clean(daemon.log.read_text())
