"""The objects of a kind as the API server has them: a list, and a watch from there on.

A watch that ends is taken up again where it ended. Where the API server has forgotten that place, there is another list. While it
cannot be reached, the objects are those that were known last.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

from toolcell._printable import printable
from toolcelld_cluster.kubernetes.api import GONE, Api, ApiFault, ApiRefused
from toolcelld_cluster.kubernetes.objects import table, text

logger = logging.getLogger(__name__)

PAUSE_SECONDS: Final = (0.5, 15.0)
"""Before the API server is asked again: twice as long each time, up to the second one, and by chance up to half less."""
OBJECTS_MAX: Final = 20_000
"""Kubernetes is made for 5,000 nodes."""

ReadT = TypeVar("ReadT")


class Mirror(Generic[ReadT]):
    """The objects, by name.

    Args:
        api: The API server.
        path: Of the kind.
        selector: Labels that they have to have; empty for all.
        read: Makes one what is kept of it; None for one that is left out.
        changed: Called when anything has changed.
    """

    def __init__(
        self,
        api: Api,
        path: str,
        selector: str,
        read: Callable[[Mapping[str, Any]], ReadT | None],
        changed: Callable[[], None],
    ) -> None:
        self.objects: dict[str, ReadT] = {}
        self.is_known = False  # that there has been a list
        self.fault = ""  # why nothing is known anew
        self._api = api
        self._path = path
        self._selector = selector
        self._read = read
        self._changed = changed
        self._version = ""  # where the next watch begins; empty for a list before it

    async def run(self) -> None:
        """Follow the objects, until cancelled."""
        pause = PAUSE_SECONDS[0]
        while True:
            begun = time.monotonic()
            try:
                if not self._version:
                    await self._list()
                await self._api.watch(self._path, self._selector, self._version, self._take, self._hear)
            except ApiFault as fault:
                self._lose(fault)
            if time.monotonic() - begun > PAUSE_SECONDS[1]:
                pause = PAUSE_SECONDS[0]
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, PAUSE_SECONDS[1]) if self.fault else PAUSE_SECONDS[0]

    def _lose(self, fault: ApiFault) -> None:
        if isinstance(fault, ApiRefused) and fault.status == GONE:
            self._version = ""
        why = printable(str(fault), lines=False)
        if why != self.fault:
            logger.warning("%s cannot be watched: %s", self._path, why)
        self.fault = why
        self._changed()

    def _hear(self) -> None:
        self.fault = ""

    async def _list(self) -> None:
        found: dict[str, ReadT] = {}

        def take(content: Mapping[str, Any]) -> None:
            read = self._read(content)
            if read is not None:
                found[_name(content)] = read

        self._version = await self._api.list(self._path, self._selector, take, OBJECTS_MAX)
        self.objects, self.is_known = found, True
        self._hear()
        self._changed()

    def _take(self, kind: str, content: Mapping[str, Any]) -> None:
        version, self._version = _version(content), ""  # an event that is none is followed by a list
        if kind != "BOOKMARK":
            name, read = _name(content), self._read(content)
            if kind == "DELETED" or read is None:
                self.objects.pop(name, None)
            elif name in self.objects or len(self.objects) < OBJECTS_MAX:
                self.objects[name] = read
            else:
                raise ApiFault(f"it has more than {OBJECTS_MAX} objects of {self._path}")
            self._changed()
        self._version = version


def _version(content: Mapping[str, Any]) -> str:
    version = text(table(content, "metadata").get("resourceVersion"))
    if not version:
        raise ApiFault("it tells of a change without a version")
    return version


def _name(content: Mapping[str, Any]) -> str:
    name = text(table(content, "metadata").get("name"))
    if not name:
        raise ApiFault("it tells of an object without a name")
    return name
