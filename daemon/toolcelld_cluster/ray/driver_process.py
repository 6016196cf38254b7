"""The process that speaks with Ray, from the side of Placement: requests go to its standard input, and answers come back in any
order.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from toolcell._printable import printable
from toolcelld_cluster.configuration import RaySection

DRIVER: Final = "toolcelld_cluster.ray.driver"
WORDS: Final = ("-P", "-m")
CONNECT_SECONDS: Final = 60.0
"""In which a driver connects; Ray itself waits for a control plane that is gone without an end."""
DOWN_SECONDS: Final = 90.0
"""In which all daemons have ended, beyond the time of their drain."""
LINE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of one answer: 5,000 nodes have some megabytes."""
ENDED: Final = "the process that speaks with Ray has ended"


class DriverLost(Exception):
    """The driver has ended, or cannot be started; the text says why."""


class DriverRefused(Exception):
    """Ray, or the driver, cannot do what it was asked for; the text says why."""


class DriverProcess:
    """The process that speaks with Ray, and what it was asked."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._over = False

    async def hello(self, section: RaySection) -> None:
        """Have it connect. Raises DriverRefused and DriverLost."""
        await self._send({"id": 0, "address": section.address, "namespace": section.namespace})
        answer = await self._read()
        if answer is None:
            raise DriverLost(ENDED)
        if "error" in answer:
            raise DriverRefused(answer["error"])

    async def ask(self, do: str, **arguments: Any) -> Any:
        """Return the answer to a request. Raises DriverRefused and DriverLost."""
        if self._over:
            raise DriverLost(ENDED)
        number = next(self._numbers)
        future = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send({"id": number, "do": do, **arguments})
            return await future
        finally:
            self._asked.pop(number, None)

    async def listen(self) -> None:
        """Take its answers, until it ends; then raise DriverLost."""
        try:
            while (answer := await self._read()) is not None:
                future = self._asked.get(answer["id"])
                if future is None or future.done():
                    continue
                if "error" in answer:
                    future.set_exception(DriverRefused(printable(answer["error"])))
                else:
                    future.set_result(answer["value"])
            raise DriverLost(ENDED)
        finally:
            self._over = True
            for future in self._asked.values():
                if not future.done():
                    future.set_exception(DriverLost(ENDED))

    async def _send(self, request: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{json.dumps(request)}\n".encode())
            await self._process.stdin.drain()
        except OSError as error:
            raise DriverLost(ENDED) from error

    async def _read(self) -> dict[str, Any] | None:
        assert self._process.stdout is not None
        try:
            line = await self._process.stdout.readline()
        except ValueError as error:
            raise DriverLost(f"it answers with more than {LINE_BYTES_MAX} bytes") from error
        return json.loads(line) if line else None


@asynccontextmanager
async def driver(section: RaySection) -> AsyncGenerator[DriverProcess]:
    """A driver that has connected, for the block. Raises DriverRefused and DriverLost."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *WORDS, DRIVER),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LINE_BYTES_MAX,
        start_new_session=True,  # signals of a terminal are for Placement
    )
    try:
        made = DriverProcess(process)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await made.hello(section)
        except TimeoutError:
            raise DriverLost(f"it does not answer within {CONNECT_SECONDS:g} s") from None
        listening = asyncio.ensure_future(made.listen())  # awaited below, also when this is cancelled
        try:
            yield made
        finally:
            listening.cancel()
            with suppress(asyncio.CancelledError, DriverLost):
                await listening
    finally:
        with suppress(ProcessLookupError):
            process.kill()  # it keeps nothing; groups and actors are detached
        await process.wait()


async def down(section: RaySection) -> list[str]:
    """End the daemons of all nodes; return these nodes. Raises DriverRefused and DriverLost."""
    async with driver(section) as found:
        try:
            async with asyncio.timeout(section.drain + DOWN_SECONDS):
                nodes: list[str] = await found.ask("down")
        except TimeoutError:
            raise DriverLost("it does not say that they have ended") from None
        return nodes
