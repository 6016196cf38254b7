"""What an MCP server lists after it has said that its tools have changed.

It is asked a page at a time while its calls go on, at most every half second, and has ten seconds to answer.
"""

from __future__ import annotations

import math
import time
from typing import Final

from toolcell._servers.connection import ServerConnection
from toolcell._servers.listing import Listing, Lists

LIST_SECONDS: Final = 0.5
"""Between two lists that a server announces; the daemon takes twice as many, so that its clock may run slower."""
LISTING_SECONDS: Final = 10.0
"""For all pages of a list, as for its first one when it is started."""


class AnnouncedLists:
    """The lists of one server after its first one.

    Args:
        connection: Leads to the server.
        announced: Whether it has said already that its tools have changed.
    """

    def __init__(self, connection: ServerConnection, *, announced: bool) -> None:
        self._connection = connection
        self._announced = announced
        self._listing: Listing | None = None
        self._due = -math.inf  # when it may be asked; while it is asked, when that is given up

    @property
    def due(self) -> float:
        """When to go on, unless the server says something before; infinite if no list is wanted."""
        return self._due if self._announced or self._listing is not None else math.inf

    def announce(self) -> None:
        """Note that its tools have changed."""
        self._announced = True

    def begin_anew(self) -> None:
        """Note that the server is started again, and may have other tools than before."""
        self._announced, self._listing = True, None

    def forget(self) -> None:
        """Note that the server has ended."""
        self._announced, self._listing = False, None

    def take(self) -> Lists | None:
        """Ask for a list where one is wanted, or for its next page; return the list when it is complete.

        Raises:
            TimeoutError: The server has not answered in time.
            RpcError: It refuses.
            ValueError: What it answers is no list.
            RecursionError: The same.
            ServerBroken: It breaks the protocol, or has ended.
        """
        now = time.monotonic()
        try:
            if self._listing is None:
                if self._announced and now >= self._due:
                    self._announced = False
                    self._listing = Listing(self._connection)
                    self._due = now + LISTING_SECONDS
                return None
            if (found := self._listing.take()) is None and now < self._due:
                return None
            if found is None:
                self._listing.give_up()
                raise TimeoutError(f"the server has not listed its tools within {LISTING_SECONDS:g} s")
        except Exception:
            self._end(now)
            raise
        self._end(now)
        return found

    def _end(self, now: float) -> None:
        self._listing = None
        self._due = now + LIST_SECONDS
