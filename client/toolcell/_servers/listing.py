"""What an MCP server offers: its lists, which come in pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from toolcell._servers.connection import RpcError, ServerConnection, result_of_response

PAGES_MAX: Final = 50
"""Of a list; more tools than fit there are of no use to a model."""


@dataclass(frozen=True, slots=True)
class List:
    """A list that a server may have."""

    method: str
    member: str  # of the result
    capability: str  # with which it has the list; empty where each is asked
    key: str  # what an entry is known by
    count: int  # that are used; no further page is asked for with more than that


LISTS: Final = (
    List("tools/list", "tools", "", "name", 5000),
    List("resources/list", "resources", "resources", "uri", 1000),
    List("resources/templates/list", "resourceTemplates", "resources", "uriTemplate", 50),
    List("prompts/list", "prompts", "prompts", "name", 200),
)
"""Tools are counted, and 128 are used. The others a host shows to a person, who chooses, and it holds each address against
each template."""

Lists: TypeAlias = Mapping[str, "list[Mapping[str, Any]] | RpcError"]
"""What a server lists, by the member of the result; the error of a list that it has and does not tell."""


class Listing:
    """What a server offers, page by page, while other requests go on: its tools, and of the rest what it says that it has.

    Args:
        connection: Leads to the server; `exchange` reads what it sends.
    """

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        able = connection.capabilities
        self._left = [each for each in LISTS if not each.capability or each.capability in able]
        self._lists: dict[str, list[Mapping[str, Any]] | RpcError] = {}
        self._begin()

    def _begin(self) -> None:
        self._list = self._left.pop(0)
        self._found: list[Mapping[str, Any]] = []
        self._pages = 0
        self._number: int = self._connection.begin(self._list.method, {})

    def take(self) -> Lists | None:
        """Return the lists when the last page has come, else None.

        Raises `RpcError` where it does not list its tools, and `ServerBroken` as `begin` does.
        """
        while (response := self._connection.take(self._number)) is not None:
            try:
                over = self._read(result_of_response(response))
            except RpcError as error:
                if not self._list.capability:
                    raise
                self._lists[self._list.member], over = error, True
            if over and not self._left:
                return self._lists
            if over:
                self._begin()
        return None

    def _read(self, page: Mapping[str, Any]) -> bool:
        """Take in a page, and ask for the next; return whether it is the last."""
        listed: Any = page.get(self._list.member)
        if isinstance(listed, list):
            self._found += filter(_is_object, cast("Sequence[Any]", listed))
        self._pages += 1
        cursor = page.get("nextCursor")
        if cursor and self._pages < PAGES_MAX and len(self._found) <= self._list.count:
            self._number = self._connection.begin(self._list.method, {"cursor": cursor})
            return False
        self._lists[self._list.member] = self._found
        return True

    def give_up(self) -> None:
        """Ignore what comes from now on."""
        self._connection.forget(self._number)


def lists_of(connection: ServerConnection) -> Lists:
    """Wait for what a server offers. Raises as `ServerConnection.request`."""
    listing = Listing(connection)
    while (found := listing.take()) is None:
        connection.turn(None)
    return found


def _is_object(value: object) -> bool:
    return isinstance(value, dict)
