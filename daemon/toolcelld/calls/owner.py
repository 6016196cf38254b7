"""The session that a call belongs to, as far as calls know it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from toolcelld.calls import events
    from toolcelld.calls.call import Call
    from toolcelld.calls.outcomes.moved import Moved
    from toolcelld.calls.timers import Deadlines, MessageAllowance
    from toolcelld.policy.cell_spec import CellSpec
    from toolcelld.pool.fair_queue import Places
    from toolcelld.services import Services


class Owner(Protocol):
    """What calls share, and whom they tell how they get on. `sessions.session.Session` is one."""

    services: Services
    id: str
    secret_digest: bytes
    agent: str
    directory: str
    node: str
    """Of a placed session, its node; else empty."""
    fence: int
    """Of a placed session, that of its lease; else 0."""
    worktree: str
    answers: bool
    """Whether the client that is attached now answers questions."""
    offered_services: frozenset[str]
    """The services that it offers."""
    always: set[tuple[str, str, str, str]]
    """What a person has allowed until the session ends: asker, permission and pattern."""
    allowance: MessageAllowance
    places: Places
    hook_places: Places
    deadlines: Deadlines

    def tell(self, event: events.Event) -> None:
        """Queue an event for the client."""

    def has_room(self, size: int) -> bool:
        """Whether so many bytes more may be kept until the client has read them."""
        ...

    def take_state_lost(self, spec: CellSpec) -> bool:
        """Return once whether the session's own worker for a file was lost since its last call."""
        ...

    def project_changed(self) -> bool:
        """Whether there is something for `after_call` to do."""
        ...

    def after_call(self, *, repaired: bool) -> tuple[Moved, ...]:
        """Move aside what has appeared at protected names of the project; see `ProjectWatch.after_call`."""
        ...

    def on_begun(self, call: Call) -> None:
        """A worker has the call."""

    def on_waited_out(self, call: Call) -> None:
        """The timeout of a call has passed before its tool was known; it is refused if there is no such tool."""

    def on_ended(self, call: Call, ending: tuple[events.Event, ...]) -> None:
        """The call has ended; these events tell it."""
