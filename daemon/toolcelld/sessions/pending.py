"""Calls that came early: of tools whose files are still being described.

A session opens before everything is described, and whoever knows a tool's name may call it at once. Such a
call waits here, without a worker and without a beginning, until its tool is known, nothing is left that could
bring it, or it has waited long enough; then it is admitted or refused like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from toolcelld.calls.request import Request

__all__ = ["Early"]

WAIT_SECONDS_MAX: Final = 15.0
"""A file may load for ten seconds, and others before it."""


class _Waiting(NamedTuple):
    request: Request
    since: float
    patience: asyncio.TimerHandle


class Early:
    """The calls of one session that wait for their tool; each is passed on once, unless it is dropped."""

    def __init__(self, pass_on: Callable[[Request], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._pass_on = pass_on
        self._waiting: dict[str, _Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._waiting

    def wait(self, request: Request) -> None:
        """Keep a call, but no longer than it may take as a whole."""
        limit = request.limits.timeout_seconds
        seconds = WAIT_SECONDS_MAX if limit is None else min(limit, WAIT_SECONDS_MAX)
        patience = self._loop.call_later(seconds, self._let_go, request.call_id)
        self._waiting[request.call_id] = _Waiting(request, self._loop.time(), patience)

    def look(self, is_settled: Callable[[Request], bool]) -> None:
        """Pass on those about whose tool everything is known by now."""
        for call_id in [call_id for call_id, waiting in self._waiting.items() if is_settled(waiting.request)]:
            self._let_go(call_id)

    def drop(self, call_id: str) -> bool:
        """Forget a call; False where there is none."""
        waiting = self._waiting.pop(call_id, None)
        if waiting is not None:
            waiting.patience.cancel()
        return waiting is not None

    def drop_all(self) -> list[str]:
        """Forget all, and say which there were."""
        return [call_id for call_id in list(self._waiting) if self.drop(call_id)]

    def _let_go(self, call_id: str) -> None:
        request, since, patience = self._waiting.pop(call_id)
        patience.cancel()
        limit = request.limits.timeout_seconds
        if limit is not None:  # what it waited is part of it
            left = max(0.0, limit - (self._loop.time() - since))
            request = request._replace(limits=replace(request.limits, timeout_seconds=left))
        self._pass_on(request)
