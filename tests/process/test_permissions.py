"""Permission rules: what is denied is not offered, and what is asked about runs after a yes; through a real daemon."""

from __future__ import annotations

import asyncio

import pytest
from tests.daemons import RunningDaemon

from toolcell.client import Answer, Ask, Catalog, Kind, Outcome
from toolcell_proto.v1 import toolcell_pb2 as pb

pytestmark = pytest.mark.anyio

TOOLS = """
from toolcell import ToolContext, tool

@tool(name="deploy")
def deploy(to: str = "test") -> str:
    return f"deployed to {to}"

@tool(name="look", read_only=True)
def look() -> str:
    return "looked"

@tool(name="note", programs=False)
def note() -> str:
    return "noted"

@tool(name="sly")
async def sly(context: ToolContext) -> str:
    return str(await context.ask("Harmless?", permission="tool", patterns=["sly"], always=["sly", "deploy"]))
"""


class Person:
    """Answers questions, and remembers them."""

    def __init__(self, *answers: Answer) -> None:
        self.asked: list[Ask] = []
        self._answers = list(answers)

    async def __call__(self, ask: Ask) -> Answer:
        self.asked.append(ask)
        return self._answers.pop(0)


def refused(outcome: Outcome) -> str:
    assert (outcome.kind, outcome.cause) == ("refused", "not_allowed"), outcome
    return outcome.message


@pytest.fixture
def ruled(daemon: RunningDaemon) -> RunningDaemon:
    daemon.tool("all", TOOLS)
    return daemon


async def test_a_tool_that_a_rule_denies_is_in_no_list_and_its_call_names_the_rule(
    ruled: RunningDaemon,
) -> None:
    ruled.configure('\n[permissions]\n"de*" = "deny"\n')
    async with ruled.connect() as session, ruled.operate() as operator:
        assert "deploy" not in session.catalog.tools
        assert '[permissions] "de*" = "deny"' in refused(await session.call("deploy"))
        listed = await operator.ask(
            operator.tools.ListTools, pb.ListToolsRequest(directory=str(ruled.project))
        )
        assert [(one.tool, one.reason) for one in listed.catalog.problems] == [("deploy", "disabled")]
        assert session.catalog.problems == ()


@pytest.mark.parametrize(
    ("rules", "offered"),
    [
        ('"*" = "deny"\n"look" = "allow"', {"look"}),
        ('"look" = "allow"\n"*" = "deny"', set[str]()),
        ('"project/*" = "deny"', set[str]()),
        ('"user/*" = "deny"', {"deploy", "look", "note", "sly"}),
        ('"project/de*" = "deny"\n"*" = "allow"\n"@read" = "deny"', {"deploy", "note", "sly"}),
        ('"@exec" = "deny"', {"look", "note"}),
        ('"@write" = "deny"', {"deploy", "look", "sly"}),
    ],
)
async def test_the_last_rule_that_matches_counts(ruled: RunningDaemon, rules: str, offered: set[str]) -> None:
    ruled.configure(f"\n[permissions]\n{rules}\n")
    async with ruled.connect() as session:
        assert set(session.catalog.tools) == offered


async def test_a_reload_of_the_rules_reaches_a_session_that_is_open(ruled: RunningDaemon) -> None:
    changed = asyncio.Event()

    def on_catalog(_: Catalog) -> None:
        changed.set()

    async with ruled.connect(on_catalog=on_catalog) as session:
        assert (await session.call("deploy")).text == "deployed to test"
        await asyncio.to_thread(ruled.configure, '\n[permissions]\n"deploy" = "deny"\n')
        await asyncio.wait_for(changed.wait(), 60)
        assert "deploy" not in session.catalog.tools
        refused(await session.call("deploy"))


async def test_a_deny_that_is_loaded_withdraws_the_question_of_the_rule_before(ruled: RunningDaemon) -> None:
    ruled.configure('\n[permissions]\n"deploy" = "ask"\n')
    asked, denied = asyncio.Event(), asyncio.Event()

    async def late(_: Ask) -> Answer:
        asked.set()
        await denied.wait()
        return True

    async with ruled.connect(ask=late) as session:
        call = session.call("deploy")
        await asyncio.wait_for(asked.wait(), 60)
        await asyncio.to_thread(ruled.configure, '"deploy*" = "deny"\n')
        denied.set()
        assert '[permissions] "deploy*" = "deny"' in refused(await call)


async def test_a_rule_asks_before_the_tool_runs_with_its_arguments_in_full(ruled: RunningDaemon) -> None:
    ruled.configure('\n[permissions]\n"deploy" = "ask"\n')
    person = Person(True, False)
    async with ruled.connect(ask=person) as session:
        outcome = await session.call("deploy", {"to": "prod\u202e"})
        assert outcome.text == "deployed to prod\u202e"
        ask = person.asked[0]
        assert ask.question.startswith("Run deploy of project with ")
        assert "prod" in ask.question
        assert "\u202e" not in ask.question
        assert (ask.permission, ask.patterns) == ("tool", ("deploy",))
        assert '"deploy" = "ask"' in ask.details["rule"]
        outcome = await session.call("deploy")
        assert (outcome.kind, outcome.cause, outcome.ran) == (Kind.denied, "permission", False)
        assert "not allowed" in outcome.message
        assert len(person.asked) == 2


async def test_always_holds_for_the_tool_in_the_session_and_a_tool_cannot_give_it_itself(
    ruled: RunningDaemon,
) -> None:
    ruled.configure('\n[permissions]\n"*" = "ask"\n"look" = "allow"\n')
    person = Person(True, "always", "always", False)
    async with ruled.connect(ask=person) as session:
        assert (await session.call("sly")).text == "None"  # the rule's question, then its own, always
        assert (await session.call("deploy")).text == "deployed to test"  # asked, in spite of that
        assert (await session.call("deploy")).text == "deployed to test"
        assert (await session.call("look")).text == "looked"
        assert [ask.call.tool for ask in person.asked] == ["sly", "sly", "deploy"]
        assert (await session.call("sly")).kind is Kind.denied  # its own "always" is none for the rule
    other = Person(False)
    async with ruled.connect(ask=other) as session:
        assert (await session.call("deploy")).kind is Kind.denied


async def test_without_somebody_to_ask_the_call_is_refused_and_says_what_to_do(ruled: RunningDaemon) -> None:
    ruled.configure('\n[permissions]\n"deploy" = "ask"\n')
    async with ruled.connect() as session:
        message = refused(await session.call("deploy"))
        assert '[permissions] "deploy" = "ask" in ~/.config/toolcell/config.toml' in message
        assert "toolcell config set permissions.deploy allow" in message
        assert (await session.call("look")).text == "looked"


async def test_arguments_that_cannot_be_shown_in_full_are_not_allowed(ruled: RunningDaemon) -> None:
    ruled.configure('\n[permissions]\n"deploy" = "ask"\n')
    person = Person()
    async with ruled.connect(ask=person) as session:
        outcome = await session.call("deploy", {"to": "x" * 60_000})
        assert outcome.kind is Kind.denied
        assert "more than 49152" in outcome.message
    assert person.asked == []


async def test_a_call_that_waits_for_its_permission_can_be_stopped(ruled: RunningDaemon) -> None:
    ruled.configure('\n[permissions]\n"deploy" = "ask"\n')
    asked, answer = asyncio.Event(), asyncio.Event()

    async def slow(_: Ask) -> Answer:
        asked.set()
        await answer.wait()
        return True

    async with ruled.connect(ask=slow) as session:
        call = session.call("deploy")
        await asyncio.wait_for(asked.wait(), 60)
        call.abort()
        outcome = await call
        assert (outcome.kind, outcome.ran) == (Kind.aborted, False)
        answer.set()
        assert (await session.call("look")).text == "looked"


async def test_a_session_that_closes_takes_the_open_question_with_it(ruled: RunningDaemon) -> None:
    ruled.configure('\n[permissions]\n"deploy" = "ask"\n')
    asked = asyncio.Event()

    async def never(_: Ask) -> Answer:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with ruled.connect(ask=never) as session:
        call = session.call("deploy")
        await asyncio.wait_for(asked.wait(), 60)
    assert (await call).kind is not Kind.ok


@pytest.mark.parametrize(
    ("tool", "ending"),
    [("deploy", (Kind.denied, "permission", False)), ("sly", (Kind.timed_out, "question", True))],
    ids=["of a rule", "of the tool"],
)
async def test_a_question_that_nobody_answers_ends_its_call(
    ruled: RunningDaemon, tool: str, ending: tuple[Kind, str, bool]
) -> None:
    ruled.configure('\n[max]\ntimeout = "300ms"\n\n[permissions]\n"deploy" = "ask"\n')

    async def never(_: Ask) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    async with ruled.connect(ask=never) as session:
        outcome = await session.call(tool)
    assert (outcome.kind, outcome.cause, outcome.ran) == ending
    assert (
        "its questions have waited 0.3 s for answers, the most that [max] timeout allows" in outcome.message
    )
    assert "call it again when its questions can be answered" in outcome.message.lower()


PROJECT_RULES = '[permissions]\n"deploy" = "ask"\n"note" = "deny"\n"look" = "ask"\n'


@pytest.mark.parametrize("trust", ["all", "confined"])
async def test_a_project_may_be_stricter_and_never_laxer(ruled: RunningDaemon, trust: str) -> None:
    (ruled.project / ".toolcell" / "config.toml").write_text(PROJECT_RULES)
    text = ruled.config.read_text().replace('trust = "all"', f'trust = "{trust}"')
    ruled.config.write_text(text + '\n[permissions]\n"*" = "allow"\n"look" = "deny"\n')
    ruled.reload()
    async with ruled.connect() as session:
        assert set(session.catalog.tools) == {"deploy", "sly"}
        assert '"look" = "deny"' in refused(await session.call("look"))
        assert ".toolcell/config.toml" in refused(await session.call("deploy"))
        assert "allow" not in (await session.call("note")).message


@pytest.mark.parametrize(
    "rules", ['"*" = "allow"', '"x\\ny" = "deny"', '"deploy" = 1', '"deploy" = ["deny"]']
)
async def test_a_project_that_allows_or_lies_about_types_is_a_broken_configuration(
    ruled: RunningDaemon, rules: str
) -> None:
    (ruled.project / ".toolcell" / "config.toml").write_text(f"[permissions]\n{rules}\n")
    ruled.configure('\n[permissions]\n"deploy" = "deny"\n')
    async with ruled.connect() as session:
        assert "deploy" not in session.catalog.tools
        assert any("permissions" in problem.message for problem in session.catalog.problems)


async def test_a_pattern_of_many_stars_takes_no_time_that_counts(ruled: RunningDaemon) -> None:
    stars = "*" + "a*" * 60 + "!"
    rules = "".join(f'"{stars[:-2]}{letter}b" = "deny"\n' for letter in "cdefgh")
    ruled.tool("long", f'from toolcell import tool\n\n@tool(name="{"a" * 64}")\ndef f() -> None: ...\n')
    ruled.configure(f"\n[permissions]\n{rules}")
    async with ruled.connect() as session:
        assert "a" * 64 in session.catalog.tools
