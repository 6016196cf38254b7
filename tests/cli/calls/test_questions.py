"""Questions for a value, on the terminal of `toolcell call`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from toolcell.cli._ui.terminal import Terminal
from toolcell.cli.calls.call import services  # pyright: ignore[reportPrivateUsage]  without a terminal of its own
from toolcell.client import Call

pytestmark = pytest.mark.anyio

CALL = cast("Call", SimpleNamespace(tool="t", id="c"))


class Person:
    """A terminal with prepared answers."""

    def __init__(self, *says: str, answers: bool = True) -> None:
        self.answers = answers
        self.says = list(says)
        self.shown: list[str] = []

    async def ask(self, question: str, choices: str) -> str:
        self.shown.append(f"{question} {choices}")
        return self.says.pop(0)

    def note(self, text: str) -> None:
        self.shown.append(text)


async def asked(person: Person, **arguments: Any) -> object:
    answer = await services(cast("Terminal", person))["ui.question"](CALL, **arguments)
    return cast("dict[str, object]", answer)["value"]


@pytest.mark.parametrize(
    ("says", "value"),
    [("1", "a"), ("2", "b"), ("0", None), ("3", None), ("-1", None), ("²", None), ("", None)],
)
async def test_an_option_is_chosen_by_its_number(says: str, value: str | None) -> None:
    person = Person(says)
    assert await asked(person, kind="select", message="Which?", options=["a", "b"]) == value
    assert person.shown == ["t: Which?\n  1. a\n  2. b 1-2?"]


async def test_enter_alone_takes_the_proposal_and_confirms_nothing() -> None:
    person = Person("", "Eve", "", "y")
    assert await asked(person, kind="input", message="Name?", default="Ada") == "Ada"
    assert await asked(person, kind="input", message="Name?", default="Ada") == "Eve"
    assert await asked(person, kind="confirm", message="Sure?") is False
    assert await asked(person, kind="confirm", message="Sure?") is True


async def test_a_tool_cannot_draw_on_the_terminal() -> None:
    person = Person("1", "")
    await asked(person, kind="select", message="Which?\x1b[2J", options=["a\n  2. b"])
    await asked(person, kind="input", message="Name?", default="\x1b[31m")
    await services(cast("Terminal", person))["ui.notify"](CALL, message="done\x1b[2J\nt: more", level="info")
    assert not any("\x1b" in shown for shown in person.shown)
    assert person.shown[0].count("\n") == 1
    assert person.shown[2].count("\n") == 1


async def test_a_tool_that_aborts_its_agent_aborts_its_call() -> None:
    reasons: list[str] = []
    call = cast("Call", SimpleNamespace(tool="t", id="c", abort=reasons.append))
    assert await services(cast("Terminal", Person()))["agent.abort"](call, reason="enough") is None
    assert reasons == ["by the tool"]


def test_without_a_terminal_there_are_only_notes() -> None:
    assert set(services(cast("Terminal", Person(answers=False)))) == {"agent.abort", "ui.notify"}
