"""A session that only listens, for tests of calls."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from toolcelld.calls import events
from toolcelld.calls.call import Call
from toolcelld.calls.timers import Deadlines, MessageAllowance
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.pool.fair_queue import Places
from toolcelld.services import Services

if TYPE_CHECKING:
    from toolcelld.calls.owner import Owner

__all__ = ["FakeOwner"]


class FakeOwner:
    """Whom calls of a test belong to; the keywords are the services that the test needs."""

    id = "s-1"
    secret_digest = b""
    agent = "claude"
    directory = worktree = "/"
    answers = True
    offered_services: frozenset[str] = frozenset()
    node = ""
    fence = 0

    def __init__(
        self, places: Places | None = None, *, seconds_max: float | None = None, **services: Any
    ) -> None:
        config = SimpleNamespace(max=SimpleNamespace(timeout_seconds=seconds_max))
        own = {"config": config, "log": self._log, "decision": self._decision, **services}
        self.services = cast("Services", SimpleNamespace(**own))
        self.deadlines = Deadlines()
        self.places = self.hook_places = places or Places(1)
        self.allowance = MessageAllowance()
        self.always: set[tuple[str, str, str, str]] = set()
        self.told: list[events.Event] = []
        self.lines: list[str] = []
        self.decisions: list[tuple[str, str, str]] = []
        self.ended = 0

    def _log(self, call_id: str, tool: str, source: str, level: str, text: str) -> None:
        self.lines.append(text)

    def _decision(self, action: str, message: str, *, tool: str, session_id: str, call_id: str) -> None:
        self.decisions.append((action, message, tool))

    def tell(self, event: events.Event) -> None:
        self.told.append(event)

    def has_room(self, size: int) -> bool:
        return True

    def take_state_lost(self, spec: CellSpec) -> bool:
        return False

    def project_changed(self) -> bool:
        return False

    def after_call(self, *, repaired: bool) -> tuple[()]:
        return ()

    def on_begun(self, call: Call) -> None:
        """It is not sent."""

    def on_waited_out(self, call: Call) -> None:
        """Its tool is known."""

    def on_ended(self, call: Call, ending: tuple[events.Event, ...]) -> None:
        self.told += ending
        self.ended += 1


if TYPE_CHECKING:
    _: type[Owner] = FakeOwner
