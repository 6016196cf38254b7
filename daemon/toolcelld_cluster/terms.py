"""Fences, and the terms in which a Placement may give those of exclusive volumes.

Several Placements may serve a cluster. Each knows from the nodes what the others have given, and gives what is not exclusive.
An exclusive volume is given by the one whose epoch most nodes have taken, for as long as they have just said so: that is its
term. A node is held for as long, so terms do not overlap. Each term begins as a start does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from toolcelld.sessions.fences import HOLD_SECONDS, TERM_FENCES
from toolcelld_cluster.rules import CLOCKS_SECONDS, PlacementRules

FENCES_AHEAD_MAX: Final = 2**30
"""By which a fence that a node reports may be ahead of ours. Fences begin with the time in milliseconds, so it is twelve days
by which the clock of Placement's machine was set back, or a thousand terms of others. No fence of a stolen node is believed
that would leave none to give."""


class Terms:
    """The fences of one Placement.

    Args:
        rules: The configuration.
        nodes: The names of the nodes.
        now: The clock, now.
        first_fence: Greater than each fence that was given before, such as the time in milliseconds.
    """

    def __init__(self, rules: PlacementRules, nodes: Iterable[str], now: float, first_fence: int) -> None:
        self._rules = rules
        self._nodes = set(nodes)
        self.epoch = first_fence
        """What nodes are asked with, so that they open no exclusive volume with a ticket that another Placement has given."""
        self._fence = first_fence
        self._unheard = set(self._nodes)  # that have not reported since the start
        self._heard_at: dict[str, float] = {}  # when nodes were asked that have taken our epoch
        self._until = 0.0  # of several Placements, when our term is over
        self._was_led = False  # whether our epoch has had a term
        self._given = 0  # exclusive fences of our epoch, which those of others do not touch
        self._known_from = now + self._over_seconds
        """When no lease is in use that was given before the start."""

    @property
    def _over_seconds(self) -> float:
        """From when a ticket is given to the end of what is left of its lease."""
        return self._rules.ticket_seconds + CLOCKS_SECONDS + self._rules.over_seconds

    # Fences

    def next_fence(self) -> int:
        """Return a fence that is greater than each before."""
        self._fence += 1
        return self._fence

    def exclusive_fence(self) -> int:
        """Return a fence for an exclusive volume, in our term."""
        if not self._rules.elects:
            return self.next_fence()
        self._given += 1
        return self.epoch + self._given

    def believe(self, fence: int) -> bool:
        """Give greater fences than one that a node reports; return False for one that is too far ahead."""
        if fence > self._fence + FENCES_AHEAD_MAX:
            return False
        self._fence = max(self._fence, fence)
        return True

    def claim(self, now: float) -> bool:
        """Return whether exclusive fences are given here now; when those of a term are used up, ask for another one."""
        if not self._rules.elects:
            return True
        if self._given >= TERM_FENCES - 1:
            self._until = now
            self._begin_anew()
        return now < self._until

    def unheard(self, now: float) -> Iterable[str]:
        """Return the nodes that may have leases of before the start, of which nothing is known."""
        return self._unheard if now < self._known_from else ()

    # What nodes say

    def join(self, now: float, node: str) -> None:
        """Take note of a new node."""
        self._nodes.add(node)
        if now < self._known_from:
            self._unheard.add(node)

    def part(self, node: str) -> None:
        """Forget a node that is gone."""
        self._nodes.discard(node)
        self._unheard.discard(node)

    def report(self, asked_at: float, node: str, epoch: int, *, elected: bool) -> bool:
        """Take over what a node has said of epochs; return False while another Placement holds it.

        Args:
            asked_at: The clock when it was asked, with our epoch.
            node: Its name.
            epoch: The greatest epoch that it has taken.
            elected: Whether it has taken ours; asked for by several Placements alone.
        """
        if self._rules.elects:
            self._hold(asked_at, node, epoch, elected=elected)
            return elected or asked_at >= self._until
        if epoch <= self.epoch:
            self._unheard.discard(node)
        # The clock was set back, so tickets of before may have greater fences than ours, until none is valid any more
        elif self.believe(epoch) and asked_at >= self._known_from:
            self.epoch = self._fence
        return True

    def _hold(self, asked_at: float, node: str, epoch: int, *, elected: bool) -> None:
        """Take note of whether a node is held by us, and begin a term or go on with it when most are."""
        if not elected:
            self._heard_at.pop(node, None)
            if epoch > self.epoch - TERM_FENCES and self.believe(epoch) and asked_at >= self._until:
                self._begin_anew()
            return
        self._unheard.discard(node)
        self._heard_at[node] = asked_at
        heard = sorted(self._heard_at.values(), reverse=True)
        least = len(self._nodes) // 2
        if len(heard) <= least:
            return
        if heard[least] > self._until:
            if self._was_led:
                self._begin_anew()
                return
            self._was_led = True
            self._known_from = heard[0] + HOLD_SECONDS + self._over_seconds
        self._until = heard[least] + HOLD_SECONDS

    def _begin_anew(self) -> None:
        """Ask for a term with another epoch: what others have given meanwhile is not known."""
        self._fence += TERM_FENCES
        self.epoch, self._given, self._was_led = self._fence, 0, False
        self._heard_at.clear()
        self._unheard = set(self._nodes)
