"""What has happened to workers: published for operators, logged, and of deaths the last ones kept.

It hears of each change of a worker, whether the worker is the pool's, the describer's or an installation's.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

from toolcelld.event_log import Broadcast, OperatorEvent, about
from toolcelld.lifecycle import WorkerState
from toolcelld.pool.quarantine import STDERR_CHARACTERS_MAX, Quarantined
from toolcelld.pool.worker import Worker

logger = logging.getLogger(__name__)

DEATHS_MAX: Final = 100
"""Of the last deaths that are in memory; the records have more."""


class WorkerHistory:
    """The starts, deaths and quarantines of workers.

    Args:
        happenings: Gets an event of each.
    """

    def __init__(self, happenings: Broadcast[OperatorEvent]) -> None:
        self._happenings = happenings
        self.deaths: deque[OperatorEvent] = deque(maxlen=DEATHS_MAX)
        """The last workers that died by a crash or a limit, the newest last."""

    def on_worker_changed(self, worker: Worker) -> None:
        """Publish that a worker has started, or has died and of what."""
        if worker.state is WorkerState.DEAD:
            death = _death(worker)
            if "cause" in death.details:
                self.deaths.append(death)
            self._happenings.publish(death)
            if worker.certificate:
                fields = about(
                    call=worker.call_id,
                    tool=(worker.call_id and worker.tool) or worker.spec.file.stem,
                    session=worker.call_id and worker.session_id,
                    worker=worker.id,
                )
                who = " ".join(filter(None, (worker.spec.file.stem, worker.call_id)))
                logger.info("%s (%s) died of %s", worker.id, who, worker.certificate, extra=fields)
        elif worker.state is WorkerState.IDLE and not worker.calls:
            self._happenings.publish(
                OperatorEvent("worker.started", worker_id=worker.id, message=worker.spec.file.path)
            )

    def on_shut_out(self, held: Quarantined) -> None:
        """Log and publish that a file is in quarantine."""
        logger.warning("%s is in quarantine: %s.", held.path, held, extra=about(tool=held.stem))
        self._happenings.publish(
            OperatorEvent("tool.quarantined", tool=held.stem, message=f"{held.path}: {held}")
        )


def _death(worker: Worker) -> OperatorEvent:
    """Return the event of the end of a worker: with the cause and the last lines if it crashed."""
    message = worker.spec.file.path
    details: dict[str, str] = {}
    if worker.certificate:
        message = f"{message}: {worker.certificate}"
    if worker.crash_cause:
        details = {"cause": worker.crash_cause, "stderr": worker.crash_stderr[-STDERR_CHARACTERS_MAX:]}
        if worker.exit is not None and worker.exit.stack:
            details["stack"] = "\n".join(worker.exit.stack)
    if worker.exit is not None:
        details["exit"] = worker.exit.cause()
    return OperatorEvent(
        "worker.dead",
        session_id=worker.spec.owner if worker.spec.serial else "",
        call_id=worker.call_id,
        worker_id=worker.id,
        tool=worker.spec.file.stem,
        message=message,
        details=details,
    )
