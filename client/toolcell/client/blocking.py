"""The client without async: the same sessions and calls, for scripts and hosts that have no event loop.

    with connect(directory=".") as session:
        print(session.call("lint", {"file_path": "app.py"}, on_event=print).text)

The session lives on the event loop of an anyio portal, in a thread of its own that ends with the session. A call runs as
a task on that loop, an errand, and the calling thread waits for it. Meanwhile this thread runs `on_event` and `ask`, which
the errand hands over, so that Ctrl-C and exceptions of theirs are raised where the tool was called.

An interrupted wait cancels the errand once and continues until it has ended; a second interrupt does not wait. The task
is cancelled directly, because a cancelled anyio scope cancels every further wait too, also the one for the tool to
stop. The queue that wakes the caller is one lock in C, which an interrupt cannot leave half taken.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager, suppress
from functools import partial
from queue import SimpleQueue
from typing import Generic, Literal, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from toolcell._authoring.tool import Limits
from toolcell._session_reasons import SessionReason

from . import session as asynchronous
from .call import CANCELLED, Call
from .callbacks import Answer, Ask
from .catalog import Catalog
from .events import Event
from .offers import Offer
from .outcome import Outcome

EVENTS_AHEAD_MAX = 16  # handed over and not yet handled; further ones wait in the bounded store of the call
LEFT = "the session has been left; calls belong into the `with` block of `connect`"
WRONG_FACE = (
    "this would block the event loop that runs in this thread; use toolcell.client instead, also in a notebook: "
    "`async with toolcell.client.connect() as session: await session.call(...)`"
)

_Result = TypeVar("_Result")


class Session:
    """One client's stay with the daemon; every thread may use it, and their calls run side by side."""

    __slots__ = ("_stay",)

    def __init__(self, stay: _Stay) -> None:
        self._stay = stay

    def __repr__(self) -> str:
        return repr(self._stay.session)

    @property
    def id(self) -> str:
        """Its id, given by the daemon; it changes when the daemon restarts."""
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

    def tell(
        self, reason: SessionReason, data: Mapping[str, object] | None = None, *, session_id: str = ""
    ) -> None:
        """Tell the tools what has happened to the agent's session; see the asynchronous session. Raises ValueError, TypeError."""

        async def tell() -> None:
            self._stay.session.tell(reason, data, session_id=session_id)

        self._stay.run(lambda _: tell())

    def read_output(self, output_id: str, *, start: int = 0, length: int = 50_000) -> bytes:
        """A range of an output that was cut, fewer bytes at its end. Raises Refused, Unavailable, ValueError."""
        return self._stay.run(lambda _: self._stay.session.read_output(output_id, start=start, length=length))

    def offers(self) -> tuple[Offer, ...]:
        """What the MCP servers of the directory offer beside tools, as they were last asked. Raises Refused, Unavailable."""
        return self._stay.run(lambda _: self._stay.session.offers())


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
    linger: float | None = None,
    at_once: bool = False,
) -> Generator[Session]:
    """A session as `toolcell.client.connect` makes it; leaving it aborts what runs and waits for it.

    `ask` is called in the thread that called the tool, and may take its time; of its `call` only `id` and `tool` are
    for it to use. `on_catalog` is called in the session's own thread, must return soon, and cannot use the session.
    Raises Unavailable, whose text says what to do, and RuntimeError in the thread of a running event loop.
    """
    _refuse_a_running_loop()
    with ExitStack() as stack:
        running = start_blocking_portal(name="toolcell session")
        stay = _Stay(running.__enter__())
        # Without the exception of the block, for which the portal would cancel the calls of other threads.
        stack.callback(running.__exit__, None, None, None)
        stack.callback(stay.leave)
        # A program that forgets to leave does so at its exit; after that the thread of the portal is frozen.
        stack.callback(atexit.unregister, atexit.register(stack.close))
        stay.open(
            asynchronous.connect(
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
                at_once=at_once,
            )
        )
        yield Session(stay)


class _Stay:
    """A session on the loop of a portal, and the threads that wait there."""

    session: asynchronous.Session

    def __init__(self, portal: BlockingPortal) -> None:
        self._portal = portal
        self._lock = threading.Lock()
        self._left = False  # under the lock, so that nothing is started on a loop that is ending
        self._leaving = asyncio.Event()
        self._life = _Errand[None]()
        self._callers: dict[str, _Errand[Outcome]] = {}

    def open(self, connection: AbstractAsyncContextManager[asynchronous.Session]) -> None:
        """Open the session; it stays open until `leave`."""

        async def live(errand: _Errand[None]) -> None:
            async with connection as self.session:
                errand.wanted.put(None)
                await self._leaving.wait()

        self._wait(self._life, lambda: self._portal.start_task_soon(self._life.do, live))
        if self._life.result.done():  # it did not open
            self._life.result.result()

    def leave(self) -> None:
        """End the session; an interrupt has it leave at once."""
        with self._lock:
            self._left = True
        if not self._life.result.done():
            self._wait(self._life, lambda: self._portal.start_task_soon(self._leaving.set))
            self._life.result.result()

    def run(self, work: Callable[[_Errand[_Result]], Awaitable[_Result]]) -> _Result:
        """Do something on the session's loop, and wait for it."""
        _refuse_a_running_loop()
        errand = _Errand[_Result]()

        def begin() -> None:
            with self._lock:
                if self._left:
                    errand.cancel()
                else:
                    self._portal.start_task_soon(errand.do, work)

        self._wait(errand, begin)
        return errand.result.result()

    def _wait(self, errand: _Errand[_Result], begin: Callable[[], object]) -> None:
        """Begin, and run here what is handed over; an exception cancels the errand, and goes on when it has ended."""
        try:
            begin()
            while (wanted := errand.wanted.get()) is not None:
                wanted()
        except BaseException:
            with suppress(RuntimeError):  # the portal has ended, and the errand before it
                self._portal.start_task_soon(errand.cancel)
                while not errand.result.done():
                    errand.wanted.get()
            raise

    async def follow(
        self, errand: _Errand[Outcome], start: Callable[[], Call], on_event: Callable[[Event], object] | None
    ) -> Outcome:
        """Start a call, hand over its events, and return its outcome; being cancelled is the abort."""
        call = start()
        room = asyncio.Semaphore(EVENTS_AHEAD_MAX)
        loop = asyncio.get_running_loop()

        def tell(handle: Callable[[Event], object], event: Event) -> None:
            handle(event)
            with suppress(RuntimeError):  # the call has ended, and so has the loop
                loop.call_soon_threadsafe(room.release)

        caller = self._callers.setdefault(call.id, errand)
        try:
            if on_event is not None:
                async for event in call:
                    await room.acquire()
                    errand.wanted.put(partial(tell, on_event, event))
            return await call
        except asyncio.CancelledError:
            call.abort(CANCELLED)  # again, unless the cancellation came between two events
            await call
            raise
        finally:
            if caller is errand:
                del self._callers[call.id]

    async def ask(self, asked: Callable[[Ask], Answer], question: Ask) -> Answer:
        """Put a question to the thread that called the tool."""
        caller = self._callers.get(question.call.id)
        if caller is None:
            raise RuntimeError("no thread of this process waits for the call")
        answer: Future[Answer] = Future()
        caller.wanted.put(partial(_answer, answer, asked, question))
        return await asyncio.wrap_future(answer)


class _Errand(Generic[_Result]):
    """What runs on the session's loop while a thread waits for it.

    `wanted` are the functions for that thread to run; the None at the end comes after the result is there.
    """

    __slots__ = ("_task", "result", "wanted")

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self.wanted: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self.result: Future[_Result] = Future()

    async def do(self, work: Callable[[_Errand[_Result]], Awaitable[_Result]]) -> None:
        """Do it, in a task of the portal."""
        self._task = asyncio.current_task()
        try:
            self.result.set_result(await work(self))
        except asyncio.CancelledError:
            self.result.set_exception(RuntimeError(LEFT))
        except BaseException as error:  # noqa: BLE001  it is raised in the waiting thread
            self.result.set_exception(error)
        self.wanted.put(None)

    def cancel(self) -> None:
        """Cancel it; one that has not begun ends here."""
        if self._task is not None:
            self._task.cancel()
        elif not self.result.done():
            self.result.set_exception(RuntimeError(LEFT))
            self.wanted.put(None)


def _answer(answer: Future[Answer], asked: Callable[[Ask], Answer], question: Ask) -> None:
    if not answer.set_running_or_notify_cancel():
        return  # the call has ended
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
