"""Questions: every one gets its one answer, and nothing is allowed without an answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.daemon.calls.owner import FakeOwner

from toolcell._context.ui import QUESTION
from toolcelld.calls.events import MESSAGE_BYTES, QuestionAsked, ServiceRequested
from toolcelld.calls.questions import OPEN_MAX, RECORDED_MAX, REMEMBERED_MAX, Questions
from toolcelld.protocol.messages import (
    AnswerMessage,
    AskMessage,
    MessageError,
    ReplyMessage,
    RequestMessage,
    from_worker,
)

pytestmark = pytest.mark.anyio


class Session(FakeOwner):
    """A client that answers, and the worker's side."""

    def __init__(
        self,
        *,
        answers: bool = True,
        services: frozenset[str] = frozenset(),
        seconds_max: float | None = None,
    ) -> None:
        super().__init__(seconds_max=seconds_max)
        self.answers = answers
        self.offered_services = services
        self.replies: list[AnswerMessage | ReplyMessage] = []
        self.results: list[tuple[int, bytes]] = []
        self.changes = 0
        self.expired: list[str] = []
        self.questions = Questions("c-1", "drop", self, self.reply, self.change, self.expired.append)

    def change(self) -> None:
        self.changes += 1

    def reply(self, message: AnswerMessage | ReplyMessage, payload: bytes) -> None:
        self.replies.append(message)
        if isinstance(message, ReplyMessage):
            self.results.append((message.ask, payload))

    def request(self, number: int, service: str = "session.send", arguments: bytes = b"{}") -> None:
        self.questions.request(RequestMessage(seq=1, ask=number, service=service), arguments)

    def ask(self, number: object, **header: object) -> None:
        header = {"type": "ask", "seq": 1, "ask": number, "question": "Drop?", **header}
        message = from_worker(header)
        assert isinstance(message, AskMessage)
        self.questions.ask(message, b"")

    @property
    def answered(self) -> list[tuple[int, bool]]:
        return [(reply.ask, reply.allowed) for reply in self.replies if isinstance(reply, AnswerMessage)]


async def test_each_answer_of_a_client_is_a_decision_and_a_call_fills_no_audit() -> None:
    session = Session(services=frozenset({QUESTION, "session.send"}))
    hostile = "Drop\n\x1b[2J" + "x" * 10_000
    session.ask(1, question=hostile)
    session.ask(2)
    session.request(3, QUESTION)
    session.request(4)
    session.ask(5)
    assert session.questions.answer(1, True, False, "")
    assert session.questions.answer(2, False, False, "no")
    assert session.questions.reply(3, b'{"value": "secret"}', "")
    assert session.questions.reply(4, b"{}", "")  # of a service, and not of a person
    session.questions.withdraw(5)
    (first, *others) = session.decisions
    assert first[1].startswith("yes: Drop\\n\\x1b[2Jxxx")
    assert len(first[1]) < 300
    assert others == [("answer", "no: Drop?", "drop"), ("answer", "a value", "drop")]
    for number in range(6, 6 + 2 * RECORDED_MAX):
        session.ask(number)
        assert session.questions.answer(number, True, False, "")
    assert len(session.decisions) == RECORDED_MAX


async def test_an_answer_reaches_the_worker_once() -> None:
    session = Session()
    session.ask(1)
    assert session.questions.open == 1
    assert session.questions.answer(1, True, False, "")
    assert not session.questions.answer(1, False, False, "")
    assert session.answered == [(1, True)]
    assert session.changes == 2


async def timers_expire() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_only_the_time_in_which_a_question_is_open_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)
    session = Session(seconds_max=10.0)
    for number, (open_seconds, closed_seconds) in enumerate(((6.0, 60.0), (3.9, 60.0), (0.2, 0.0)), 1):
        assert session.expired == []
        session.ask(number)
        now += open_seconds
        await timers_expire()
        session.questions.answer(number, True, False, "")
        now += closed_seconds
        await timers_expire()
    assert session.expired == [
        "its questions have waited 10 s for answers, the most that [max] timeout allows"
    ]


async def test_always_is_remembered_for_the_same_tool_permission_and_patterns() -> None:
    session = Session()
    session.ask(1, permission="drop", patterns=["orders", "users"])
    session.questions.answer(1, True, True, "")
    session.ask(2, permission="drop", patterns=["users"])
    session.ask(3, permission="drop", patterns=["users", "log"])
    session.ask(4, permission="read", patterns=["users"])
    assert session.answered == [(1, True), (2, True)]
    session.questions.close("over")


async def test_always_is_remembered_for_the_same_question_without_patterns() -> None:
    session = Session()
    session.ask(1, question="Go on?", permission="drop")
    session.questions.answer(1, True, True, "")
    session.ask(2, question="Go on?", permission="drop")
    session.ask(3, question="Go on? All?", permission="drop")
    session.ask(4, question="Go on?", permission="read")
    session.ask(5, question="All?", permission="drop", patterns=["Go on?"])
    session.ask(6, question="", permission="drop", patterns=["Go on?"])
    assert session.answered == [(1, True), (2, True)]
    session.questions.close("over")


async def test_what_always_remembers_is_bounded() -> None:
    session = Session()
    for number in range(1, REMEMBERED_MAX + 3):
        session.ask(number, patterns=[str(number)])
        session.questions.answer(number, True, True, "")
    assert len(session.always) == REMEMBERED_MAX
    assert session.answered[-1] == (REMEMBERED_MAX + 2, True)


async def test_patterns_that_begin_alike_are_not_the_same() -> None:
    session = Session()
    session.ask(1, patterns=["x" * 2000 + "a"])
    session.questions.answer(1, True, True, "")
    session.ask(2, patterns=["x" * 2000 + "b"])
    assert session.answered == [(1, True)]
    session.questions.close("over")


async def test_a_question_too_large_to_be_shown_is_denied_and_not_cut() -> None:
    session = Session()
    session.ask(1, patterns=["é" * 30_000])
    assert session.answered == [(1, False)]
    assert session.told == []
    assert "more than 49152" in session.replies[0].message


async def test_where_nobody_answers_every_question_is_denied() -> None:
    session = Session(answers=False)
    session.ask(1)
    assert session.answered == [(1, False)]
    why = (
        "the user could not be asked, as claude shows no questions; run it in a terminal: toolcell call drop"
    )
    assert session.replies[0].message == why
    session.request(2, "ui.question")
    assert session.replies[1].message == why


async def test_the_command_without_a_terminal_says_how_to_allow_a_question() -> None:
    session = Session(answers=False)
    session.agent = "cli"
    session.ask(1)
    session.request(2, "ui.question")
    said = "the user could not be asked, as the command has no terminal; run it in one"
    assert [reply.message for reply in session.replies] == [f"{said}, or allow what it asks by --yes", said]


async def test_a_tool_may_have_so_many_questions_open_and_no_more() -> None:
    session = Session()
    for number in range(1, OPEN_MAX + 2):
        session.ask(number)
    assert session.answered == [(OPEN_MAX + 1, False)]
    session.questions.close("over")
    assert len(session.replies) == OPEN_MAX + 1


async def test_after_the_end_every_question_is_denied_with_its_reason() -> None:
    session = Session()
    session.ask(1)
    session.questions.close("the call is being stopped")
    session.ask(2)
    assert session.answered == [(1, False), (2, False)]
    assert {reply.message for reply in session.replies} == {"the call is being stopped"}


@pytest.mark.parametrize("number", [None, "1", 1.0, 0, -1, 2**31])
async def test_a_question_without_a_proper_number_breaks_the_protocol(number: object) -> None:
    session = Session()
    with pytest.raises(MessageError):
        session.ask(number)


async def test_a_number_that_was_used_breaks_the_protocol() -> None:
    session = Session()
    session.ask(2)
    with pytest.raises(MessageError):
        session.ask(2)
    with pytest.raises(MessageError):
        session.ask(1)
    session.questions.close("over")


async def test_what_the_worker_says_is_text_and_never_a_lone_surrogate() -> None:
    session = Session()
    session.ask(1, question="a\ud800", permission="\ud800", patterns=["\udfff"])
    (asked,) = session.told
    assert isinstance(asked, QuestionAsked)
    assert asked.question == {
        "question": "a\ufffd",
        "permission": "\ufffd",
        "patterns": ["\ufffd"],
        "always": [],
    }
    session.questions.close("over")


TEXTS = st.text(max_size=300)
QUESTIONS = st.fixed_dictionaries(
    {"question": TEXTS},
    optional={
        "permission": TEXTS,
        "patterns": st.lists(TEXTS, max_size=4),
        "always": st.lists(TEXTS, max_size=4),
    },
)


@given(
    st.lists(QUESTIONS, max_size=20),
    st.lists(st.tuples(st.integers(0, 21), st.booleans()), max_size=20),
)
async def test_every_question_gets_exactly_one_answer(
    asked: list[dict[str, Any]], answers: list[tuple[int, bool]]
) -> None:
    session = Session()
    for number, header in enumerate(asked, 1):
        session.ask(number, **header)
    for number, withdrawn in answers:
        if withdrawn:
            session.questions.withdraw(number)
        else:
            session.questions.answer(number, True, False, "")
    session.questions.close("over")
    assert sorted(reply.ask for reply in session.replies) == list(range(1, len(asked) + 1))
    assert session.questions.open == 0
    for event in session.told:
        assert event.size_bytes <= MESSAGE_BYTES


SENDS = frozenset({"session.send"})


async def test_a_request_goes_to_the_client_and_what_it_came_to_to_the_worker_once() -> None:
    session = Session(services=SENDS)
    session.request(1, arguments=b'{"prompt":"hi"}')
    (told,) = session.told
    assert isinstance(told, ServiceRequested)
    assert (told.ask_id, told.service, told.arguments) == (1, "session.send", b'{"prompt":"hi"}')
    assert session.questions.reply(1, b'"hello"', "")
    assert not session.questions.reply(1, b'"again"', "")
    assert session.results == [(1, b'"hello"')]
    assert session.changes == 2


@pytest.mark.parametrize("service", ["session.list", "", "x" * 100_000])
async def test_a_service_that_is_not_offered_is_refused_at_once_and_named(service: str) -> None:
    session = Session(services=SENDS)
    session.request(1, service)
    assert session.results == [(1, b"")]
    assert "claude offers no service" in session.replies[0].message
    assert "it offers session.send" in session.replies[0].message
    assert session.told == []


async def test_an_agent_that_takes_no_questions_for_a_value_is_named_without_the_services_name() -> None:
    session = Session(services=SENDS)
    session.request(1, "ui.question")
    assert session.replies[0].message.startswith("the user could not be asked, as claude shows no questions")
    assert "ui.question" not in session.replies[0].message


async def test_an_answer_is_no_reply_and_a_reply_is_no_answer() -> None:
    session = Session(services=SENDS)
    session.ask(1)
    session.request(2)
    assert not session.questions.reply(1, b"true", "")
    assert not session.questions.answer(2, True, True, "")
    assert session.replies == []
    session.questions.close("the call is being stopped")
    assert session.answered == [(1, False)]
    assert session.results == [(2, b"")]


async def test_a_request_too_large_for_one_message_is_refused() -> None:
    session = Session(services=SENDS)
    session.request(1, arguments=b"x" * 60_000)
    assert "more than 49152" in session.replies[0].message


async def test_requests_and_questions_share_their_numbers_and_their_bound() -> None:
    session = Session(services=SENDS)
    session.ask(1)
    with pytest.raises(MessageError):
        session.request(1)
    for number in range(2, OPEN_MAX + 2):
        session.request(number)
    assert session.results == [(OPEN_MAX + 1, b"")]
    session.questions.close("over")


async def test_a_client_that_comes_is_asked_again_what_nobody_holds_and_refused_what_it_cannot_do() -> None:
    session = Session(services=SENDS)
    session.ask(1)
    session.request(2)
    session.questions.ask_again(lambda event: isinstance(event, QuestionAsked))
    assert [type(event) for event in session.told] == [QuestionAsked, ServiceRequested, ServiceRequested]
    session.offered_services = frozenset()
    session.questions.ask_again(lambda _: False)
    assert session.results == [(2, b"")]
    session.questions.close("over")
