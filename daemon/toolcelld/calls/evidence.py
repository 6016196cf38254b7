"""The evidence of a run that has not simply returned a result, and the verdict on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolcelld.calls.outcomes.outcome import Evidence, Verdict, judge

if TYPE_CHECKING:
    from toolcelld.calls.run import Run


def verdict_of(run: Run, text: str, run_seconds: float, stop_seconds: float) -> Verdict:
    """Judge a run.

    Args:
        run: with its evidence.
        text: the beginning of what its tool returned or raised.
        run_seconds: how long it took.
        stop_seconds: from the stop to the empty cell; 0 where nothing stopped it.
    """
    plan, file = run.plan, run.plan.spec.file
    return judge(
        Evidence(
            tool=plan.tool.name,
            settings=plan.settings,
            limits=plan.limits,
            run_seconds=run_seconds,
            grace_seconds=plan.grace_seconds,
            stop=run.wish,
            stop_seconds=stop_seconds,
            report_seconds=max(0.0, run.reported - run.wished) if run.wish is not None else 0.0,
            report=run.report,
            text=text,
            death=run.death,
            leftovers=max(run.leftovers, 0),
            broken=run.broken,
            policy=plan.spec.policy,
            refused=run.refused,
            attempts=run.attempts,
            question_seconds=run.questions.seconds_max or 0.0 if run.questions is not None else 0.0,
            server=file.source if plan.spec.is_server else "",
            on_abort=file.on_abort,
            remedy=run.remedy,
            ended_for=run.ended_for,
        )
    )
