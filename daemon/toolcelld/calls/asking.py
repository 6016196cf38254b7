"""The questions of a tool that runs: while one is open its call is ASKING, its timers are paused, and its place is free."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from toolcelld.calls.outcomes.outcome import QUESTION_CAUSE, Kind, Stop
from toolcelld.calls.questions import Questions
from toolcelld.lifecycle import CallEvent, CallState, WorkerState

if TYPE_CHECKING:
    from toolcelld.calls.run import Run
    from toolcelld.protocol.messages import AnswerMessage, ReplyMessage

STOPPED: Final = "the call is being stopped"
"""The answer to the open and the later questions of a call that is stopped."""
OVER: Final = "the call has ended"
"""The same for a call whose worker has reported or has died."""


def questions_of(run: Run) -> Questions:
    """Return the questions of a run, none of which is answered if it is being stopped."""
    call = run.call
    questions = Questions(
        call.id,
        run.plan.tool.name,
        call.session,
        partial(_answer, run),
        partial(_changed, run),
        lambda why: call.stop(Stop(Kind.TIMED_OUT, QUESTION_CAUSE, why)),
    )
    if run.wish is not None:
        questions.close(STOPPED)
    return questions


def _answer(run: Run, message: AnswerMessage | ReplyMessage, payload: bytes) -> None:
    if run.worker.state is not WorkerState.DEAD:
        run.worker.cell.channel.send(message, payload)


def _changed(run: Run) -> None:
    call, questions, places = run.call, run.questions, run.call.session.places
    if questions is None:
        return
    if questions.open and call.state is CallState.RUNNING:
        call.fire(CallEvent.ASKED)
        call.stop_clock()
        if run.idle is not None:
            run.idle.pause()
        call.session.services.pool.give_place(places)
    elif not questions.open and call.state is CallState.ASKING:
        places.take()
        call.fire(CallEvent.ANSWERED)
        call.run_clock()
        if run.idle is not None:
            run.idle.run()
