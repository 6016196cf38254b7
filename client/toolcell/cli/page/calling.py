"""The calls of the page: each is followed as server-sent events, and a request of its own answers what its tool asks.

A call has a session of its own, which is in the records as one of the agent "page". A question is told in the stream of its
call under a random name, and waits until it is answered, the call has ended, or its page has gone. The
daemon bounds how long, and writes each answer into the audit.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable
from typing import Annotated, Any, Final, TypeAlias

from fastapi import FastAPI, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from toolcell import Denied
from toolcell.adapters.gateway.application import JsonAnswer
from toolcell.adapters.gateway.feed import FeedEvent, Reader, as_sse
from toolcell.cli._ui.connect import CommandContext, refuse_hung, refuse_stale
from toolcell.cli._ui.exit_codes import Failure
from toolcell.cli.page.access import OPERATOR
from toolcell.cli.page.faults import PageFault
from toolcell.client import Ask, Unavailable, connect
from toolcell.client._launch.daemon import find
from toolcell.client.callbacks import REASON_CHARACTERS_MAX, Answer
from toolcell.client.events import to_dict
from toolcell.client.forms import QUESTION, Question, question_service

AGENT: Final = "page"
"""What the records call the program of these calls."""
NAME_BYTES: Final = 16
VALUE_CHARACTERS_MAX: Final = 32 * 1024
"""Of an answer; the daemon takes 48 KiB."""


class _Wanted(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    tool: Annotated[str, Field(min_length=1, max_length=256)]
    arguments: dict[str, JsonValue] = {}
    directory: Annotated[str, Field(max_length=4096)] = ""


class _Answered(BaseModel):
    """`allowed` and `always` answer a question for a permission, `value` any other one; null leaves it without a value."""

    model_config = ConfigDict(extra="forbid", strict=True)

    question: Annotated[str, Field(max_length=64)]
    allowed: bool = False
    always: bool = False
    value: Annotated[str, Field(max_length=VALUE_CHARACTERS_MAX)] | bool | None = None
    message: Annotated[str, Field(max_length=REASON_CHARACTERS_MAX)] = ""


Tell: TypeAlias = Callable[[FeedEvent], None]


class OpenQuestions:
    """The questions of all calls of the page that wait for an answer."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[Callable[[_Answered], bool], asyncio.Future[_Answered]]] = {}

    async def put(self, tell: Tell, about: dict[str, Any], fits: Callable[[_Answered], bool]) -> _Answered:
        """Tell a question to the page, and wait for an answer that fits it; cancelling takes it back."""
        name = secrets.token_urlsafe(NAME_BYTES)
        future: asyncio.Future[_Answered] = asyncio.get_running_loop().create_future()
        self._open[name] = fits, future
        tell(FeedEvent("question", {"question": name, **about}))
        try:
            return await future
        finally:
            del self._open[name]
            tell(FeedEvent("answered", {"question": name}))

    def answer(self, answer: _Answered) -> None:
        """Answer a question. Raises PageFault where it is not open, or this is no answer to it."""
        fits, future = self._open.get(answer.question, (None, None))
        if fits is None or future is None or future.done():
            raise PageFault(
                404, "unknown_question", "This question is not open: it was answered, or its call has ended."
            )
        if not fits(answer):
            raise PageFault(422, "invalid_request", "This is no answer to that question.")
        future.set_result(answer)


def add_calling(app: FastAPI, context: CommandContext) -> None:
    """Add the routes to an application."""
    questions = OpenQuestions()

    @app.post(f"{OPERATOR}call")
    async def call(wanted: _Wanted) -> Response:
        """Call a tool and follow it, as server-sent events; closing the connection aborts it."""
        return StreamingResponse(_followed(context, wanted, questions), media_type="text/event-stream")

    @app.post(f"{OPERATOR}answer")
    async def answer(answered: _Answered) -> Response:
        """Answer a question of a call that the page has made."""
        questions.answer(answered)
        return JsonAnswer({})


async def _followed(
    context: CommandContext, wanted: _Wanted, questions: OpenQuestions
) -> AsyncGenerator[bytes]:
    reader = Reader(lambda _: True)
    call_id = f"page-{secrets.token_hex(12)}"
    reader.put(FeedEvent("accepted", {"call_id": call_id}))
    # It ends with the call, and leaving this generator ends the call.
    calling = asyncio.create_task(_call(context, wanted, call_id, questions, reader.put))
    try:
        async for part in as_sse(reader, lambda event: event.name == "ended"):
            yield part
    finally:
        calling.cancel()
        await asyncio.wait({calling})
        if not calling.cancelled():
            calling.result()


async def _call(
    context: CommandContext, wanted: _Wanted, call_id: str, questions: OpenQuestions, tell: Tell
) -> None:
    """Make a call, and tell what happens and how it ended."""

    async def permission(ask: Ask) -> Answer:
        about = {"kind": "permission", "message": ask.question}
        answered = await questions.put(
            tell,
            about | {"patterns": [*ask.patterns], "always": [*ask.always]},
            lambda given: given.value is None,
        )
        if not answered.allowed and answered.message:
            raise Denied(answered.message)
        return "always" if answered.allowed and answered.always else answered.allowed

    async def value(question: Question) -> object:
        about = {"kind": question.kind, "message": question.message, "options": [*question.options]}
        answered = await questions.put(
            tell, about | {"default": question.default}, lambda given: _is_value(question, given.value)
        )
        return answered.value

    outcome = _refused("internal", "the server of the page has failed")
    try:
        daemon = find(context.socket, "running")
        refuse_stale(daemon.socket)
        await refuse_hung(daemon.socket)
        async with connect(
            daemon.socket,
            agent=AGENT,
            directory=wanted.directory or ".",
            daemon="running",
            ask=permission,
            services={QUESTION: question_service(value)},
            linger=0.0,
            at_once=True,
        ) as session:
            call = session.call(
                wanted.tool,
                wanted.arguments,
                call_id=call_id,
                on_event=lambda event: tell(FeedEvent("message", to_dict(event))),
            )
            outcome = (await call).to_dict()
    except (Unavailable, Failure) as error:
        outcome = _refused("unavailable", error.message)
    except (TypeError, ValueError) as error:  # of arguments that are no JSON, or a directory that is none
        outcome = _refused("bad_request", str(error))
    finally:
        tell(FeedEvent("ended", outcome))


def _refused(cause: str, message: str) -> dict[str, Any]:
    return {"kind": "refused", "cause": cause, "message": message}


def _is_value(question: Question, value: str | bool | None) -> bool:
    if value is None:
        return True  # dismissed
    if question.kind == "confirm":
        return isinstance(value, bool)
    return isinstance(value, str) and (question.kind == "input" or value in question.options)
