"""The client without async: the same sessions and calls, for scripts and hosts that have no event loop.

    with connect(directory=".") as session:
        print(session.call("lint", {"file_path": "app.py"}, on_event=print).text)

The session itself lives on a loop in a thread of its own, which begins and ends with it. What a caller wants is an
errand: the thread does it, and the caller waits. While it waits it runs what the errand hands it, so `on_event` and
`ask` are called by whoever called the tool: there Ctrl-C reaches them, and an exception has somebody to go to.

An interrupted wait is the abort, as a cancelled one is in `toolcell.client`: the exception goes on when the tool has
stopped, and a second Ctrl-C leaves at once. An interrupt may come between any two steps of the caller, so nothing
depends on what the caller had just done: an errand that never began, has ended, or told its last already ends alike.
A `SimpleQueue` wakes the caller because it is one lock in C, which an interrupt cannot leave half taken.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, Literal, TypeAlias, TypeVar, cast

from . import session as asynchronous
from .call import CANCELLED, Call
from .callbacks import Answer, Ask
from .catalog import Catalog
from .events import Event
from .limits import Limits
from .outcome import Outcome

__all__ = ["Session", "connect"]

EVENTS_AHEAD_MAX = (
    16  # taken from the call and not yet handled; what it says beyond that waits in its bounded store
)

LEFT = "the session has been left; calls belong into the `with` block of `connect`"
WRONG_FACE = "this would block the event loop that runs in this thread; use toolcell.client instead"

_Result = TypeVar("_Result")
_Asked: TypeAlias = Callable[[Ask], Answer]


class Session:
    """One client's stay with the daemon; every thread may use it, and their calls run side by side."""

    __slots__ = ("_stay",)

    def __init__(self, stay: _Stay) -> None:
        self._stay = stay

    def __repr__(self) -> str:
        return repr(self._stay.session)

    @property
    def id(self) -> str:
        """Its name, given by the daemon; another one after the daemon was restarted."""
        return self._stay.session.id

    @property
    def resume_token(self) -> str:
        """The secret with which another process takes the session over."""
        return self._stay.session.resume_token

    @property
    def catalog(self) -> Catalog:
        """The tools of its directory; a snapshot, always there."""
        return self._stay.session.catalog

    def call(
        self,
        tool: str,
        arguments: Mapping[str, object] | None = None,
        /,
        *,
        call_id: str | None = None,
        session_id: str = "",
        message_id: str = "",
        agent_name: str = "",
        timeout: float | None = None,
        limits: Limits | None = None,
        on_event: Callable[[Event], object] | None = None,
    ) -> Outcome:
        """Run a tool and return its Outcome; `on_event` is called here, in order, with what happens until then.

        Ctrl-C, and an exception of `on_event`, abort the call and are raised when the tool has stopped; a second
        Ctrl-C leaves at once. Raises TypeError or ValueError for arguments that are no JSON and for limits that are
        none; whatever else goes wrong is in the Outcome.
        """

        def start() -> Call:
            return self._stay.session.call(
                tool,
                arguments,
                call_id=call_id,
                session_id=session_id,
                message_id=message_id,
                agent_name=agent_name,
                timeout=timeout,
                limits=limits,
            )

        return self._stay.run(lambda errand: self._stay.follow(errand, start, on_event))

    def reload(self) -> Catalog:
        """Scan the directory again; the new catalog is the session's. Raises Refused."""
        return self._stay.run(lambda _: self._stay.session.reload())

    def described(self, seconds: float = 10) -> Catalog:
        """The catalog once every file is described, or as it is after that long. Opening waits two seconds for that."""
        return self._stay.run(lambda _: self._stay.session.described(seconds))

    def read_output(self, output_id: str, *, start: int = 0, length: int = 50_000) -> bytes:
        """A range of an output that was cut, fewer bytes at its end. Raises Refused, Unavailable, ValueError."""
        return self._stay.run(lambda _: self._stay.session.read_output(output_id, start=start, length=length))


@contextmanager
def connect(
    address: str | None = None,
    *,
    agent: str = "python",
    directory: str | os.PathLike[str] = ".",
    resume: str | None = None,
    allow: Sequence[str] = ("*",),
    deny: Sequence[str] = (),
    limits: Limits | None = None,
    ask: Callable[[Ask], Answer] | None = None,
    on_catalog: Callable[[Catalog], object] | None = None,
    daemon: Literal["start", "running", "private"] = "start",
    linger: float = 10,
) -> Generator[Session]:
    """A session as `toolcell.client.connect` makes it; leaving it aborts what runs and waits for it.

    `ask` is called in the thread that called the tool, and may take its time; of its `call` only `id` and `tool` are
    for it to use. `on_catalog` is called in the session's own thread, must return soon, and cannot use the session.
    Raises Unavailable, whose text says what to do, and RuntimeError in the thread of a running event loop.
    """
    _refuse_a_running_loop()
    stay = _Stay()
    stay.connection = asynchronous.connect(
        address,
        agent=agent,
        directory=directory,
        resume=resume,
        allow=allow,
        deny=deny,
        limits=limits,
        ask=None if ask is None else partial(stay.ask, ask),
        on_catalog=on_catalog,
        daemon=daemon,
        linger=linger,
    )
    try:
        stay.begin()
        yield Session(stay)
    finally:
        stay.leave()


class _Errand(Generic[_Result]):
    """Something that the session's thread does while a caller waits for it.

    `over` is set before the `None` that wakes the caller for the last time, so who misses the one sees the other.
    """

    __slots__ = ("_error", "_news", "_result", "over", "task")

    def __init__(self) -> None:
        self._news: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._result: _Result | None = None
        self._error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None
        self.over = False

    def wait(self, begin: Callable[[], object], stop: Callable[[], object]) -> _Result:
        """Begin it, run here what it hands over, and return its result; an interrupt stops it first."""
        try:
            begin()
            while (wanted := self._news.get()) is not None:
                wanted()
        except BaseException:
            stop()
            while not self.over:
                self._news.get()
            raise
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # the traceback holds this frame, and the frame would hold the traceback
        return cast("_Result", self._result)

    def hand_over(self, wanted: Callable[[], object]) -> None:
        """Have the caller run something."""
        self._news.put(wanted)

    async def do(self, work: Callable[[], Coroutine[Any, Any, _Result]]) -> None:
        """Do it, on the session's loop."""
        try:
            self.end(await work())
        except Exception as error:  # noqa: BLE001  it is raised where somebody waits for it
            self.end(error=error)

    def end(self, result: _Result | None = None, error: BaseException | None = None) -> None:
        """Let the caller go on; the first ending is the only one."""
        if not self.over:
            self._result = result
            self._error = error
            self.over = True
            self._news.put(None)

    def cancel(self) -> None:
        """Stop it, on the session's loop; one that has not begun never will."""
        if self.task is not None:
            self.task.cancel()
        else:
            self.end()


class _Stay:
    """A session and the thread in which it lives.

    Shared between threads are `_loop`, `_leaving` and `_left`, under the lock: what is begun before the session is left
    is begun on its loop, and nothing is said to a loop that has ended.
    """

    connection: AbstractAsyncContextManager[asynchronous.Session]
    session: asynchronous.Session

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._left = False
        self._leaving = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._errands: set[asyncio.Task[None]] = set()
        self._callers: dict[str, _Errand[Outcome]] = {}
        self._opening = _Errand[None]()
        self._ending = _Errand[None]()
        self._thread = threading.Thread(target=self._live, name="toolcell session", daemon=True)

    def begin(self) -> None:
        """Start the thread and wait until the session is open. Raises Unavailable."""
        self._opening.wait(self._thread.start, self._give_up)

    def leave(self) -> None:
        """End the session and its thread; an interrupt has it leave at once, a second one does not wait for that."""
        if not self._opening.over or sys.is_finalizing():
            return  # it is given up already; or the interpreter ends, and has stopped the thread
        self._ending.wait(self._say_goodbye, self._give_up)
        if self._thread.ident is not None:
            self._thread.join()

    def run(self, work: Callable[[_Errand[_Result]], Coroutine[Any, Any, _Result]]) -> _Result:
        """Have the session's thread do something, and wait for it."""
        _refuse_a_running_loop()
        errand = _Errand[_Result]()

        def start() -> None:
            errand.task = asyncio.create_task(errand.do(partial(work, errand)))
            self._errands.add(errand.task)  # awaited by `_stay`
            errand.task.add_done_callback(done)

        def done(task: asyncio.Task[None]) -> None:
            self._errands.discard(task)
            errand.end(error=RuntimeError(LEFT))  # unless it has ended itself, which a cancelled one has not

        def begin() -> None:
            with self._lock:
                if self._left or self._loop is None:
                    raise RuntimeError(LEFT)
                self._loop.call_soon_threadsafe(start)

        def stop() -> None:
            if not self._post(errand.cancel):
                errand.end()

        return errand.wait(begin, stop)

    async def follow(
        self,
        errand: _Errand[Outcome],
        start: Callable[[], Call],
        on_event: Callable[[Event], object] | None,
    ) -> Outcome:
        """Start a call, hand over what it says, and return how it ended; being cancelled is the abort."""
        call = start()
        room = asyncio.Semaphore(EVENTS_AHEAD_MAX)

        def tell(told: Callable[[Event], object], event: Event) -> None:
            told(event)
            self._post(room.release)

        caller = self._callers.setdefault(call.id, errand)
        try:
            if on_event is not None:
                async for event in call:
                    await room.acquire()
                    errand.hand_over(partial(tell, on_event, event))
            return await call
        except asyncio.CancelledError:
            call.abort(CANCELLED)  # again, unless the cancellation came between two events
            await call
            raise
        finally:
            if caller is errand:
                del self._callers[call.id]

    async def ask(self, asked: _Asked, question: Ask) -> Answer:
        """Put a question to whoever called the tool."""
        caller = self._callers.get(question.call.id)
        if caller is None:
            raise RuntimeError("nobody in this process waits for the call")
        answer: Future[Answer] = Future()
        caller.hand_over(partial(_answer, answer, asked, question))
        return await asyncio.wrap_future(answer)

    def _post(self, function: Callable[[], object]) -> bool:
        """Have the loop do something; False if it has ended."""
        with self._lock:
            if self._loop is None:
                return False
            self._loop.call_soon_threadsafe(function)
            return True

    def _say_goodbye(self) -> None:
        with self._lock:
            self._left = True
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._leaving.set)

    def _give_up(self) -> None:
        """Have the session leave at once, or not come at all."""
        with self._lock:
            self._left = True
            if self._loop is not None and self._task is not None:
                self._loop.call_soon_threadsafe(self._task.cancel)
        if self._thread.ident is None:
            self._opening.end()
            self._ending.end()

    def _live(self) -> None:
        """All that the thread does."""
        try:
            asyncio.run(self._stay())
        except asyncio.CancelledError:
            self._end(None)  # given up, by somebody who has an exception of their own
        except BaseException as error:  # noqa: BLE001  it is raised in the thread that connects, or leaves
            self._end(error)
        else:
            self._end(None)

    def _end(self, error: BaseException | None) -> None:
        if self._opening.over:
            self._ending.end(error=error)
        else:
            self._opening.end(error=error)
            self._ending.end()

    async def _stay(self) -> None:
        with self._lock:
            if self._left:
                return
            self._loop = asyncio.get_running_loop()
            self._task = asyncio.current_task()
        try:
            async with self.connection as self.session:
                self._opening.end()
                await self._leaving.wait()
        finally:
            if self._errands:
                await asyncio.wait(self._errands)
            with self._lock:
                self._loop = None


def _answer(answer: Future[Answer], asked: _Asked, question: Ask) -> None:
    if not answer.set_running_or_notify_cancel():
        return  # the call has ended, and nobody wants to know any more
    try:
        said = asked(question)
    except Exception as error:  # noqa: BLE001  the agent's own code, and a denial that says so
        answer.set_exception(error)
    else:
        answer.set_result(said)


def _refuse_a_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(WRONG_FACE)
