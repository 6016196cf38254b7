"""A context for tests of tools: without daemon or worker, it records all messages of the tool in lists.

    def test_a_table_is_dropped_after_a_yes(tmp_path):
        context = FakeContext(directory=tmp_path, answers=[True])
        assert drop("users", context) == "users is gone."
        assert context.asked[0].patterns == ["users"]

Programs that the tool starts with `context.exec()` really run, in `directory`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
from collections.abc import Callable, Coroutine, Iterable, Mapping
from os import PathLike
from typing import Any, Literal, NamedTuple, TypeVar

from toolcell._context.context import ToolContext

__all__ = ["Asked", "FakeContext", "Logged", "Progressed", "Requested"]

T = TypeVar("T")
Answer = bool | Literal["always"]


class Asked(NamedTuple):
    """A recorded `ToolContext.ask`; the fields are its arguments, "" or empty where not given."""

    question: str
    permission: str
    patterns: list[str]
    always: list[str]
    details: Any


class Requested(NamedTuple):
    """A recorded `ToolContext.request`: the service and its arguments, as read from JSON."""

    service: str
    arguments: dict[str, Any]


class Progressed(NamedTuple):
    """A recorded `ToolContext.progress`."""

    done: float
    total: float | None
    message: str


class Logged(NamedTuple):
    """A recorded line of `ToolContext.log`: the level in lower case, and the text."""

    level: str
    text: str


class FakeContext(ToolContext):
    """A ToolContext for tests that records messages and answers questions from a list.

    Args:
        directory: The session's directory, where `exec` runs programs; default: the current one.
        answers: The answers to `ask`, in order: True, False or "always". When there are none left, questions are denied.
        services: Functions by name that answer `request`; called with its arguments. Default: none.
        session_id: Default: "session".
        message_id: Default: "".
        call_id: Default: "call".
        agent: Default: "test".
        agent_name: Default: "main".
        worktree: The repository; default: `directory`.
    """

    updates: list[object]
    """The content of each `update`, unchanged."""
    progressed: list[Progressed]
    """Each `progress`."""
    asked: list[Asked]
    """Each `ask`."""
    requested: list[Requested]
    """Each `request`."""
    logs: list[Logged]
    """Each record of `log`."""
    title: str
    """The newest title of `metadata`; "" if there is none."""
    values: dict[str, Any]
    """The merged values of `metadata`."""

    def __init__(
        self,
        *,
        directory: str | PathLike[str] = ".",
        answers: Iterable[Answer] = (),
        services: Mapping[str, Callable[..., object]] | None = None,
        session_id: str = "session",
        message_id: str = "",
        call_id: str = "call",
        agent: str = "test",
        agent_name: str = "main",
        worktree: str | PathLike[str] | None = None,
    ) -> None:
        from pathlib import Path

        absolute = Path(directory).absolute()
        super().__init__(
            _Recorder(self, answers, services or {}),
            session_id=session_id,
            message_id=message_id,
            call_id=call_id,
            agent=agent,
            agent_name=agent_name,
            directory=absolute,
            worktree=absolute if worktree is None else worktree,
        )
        self.updates = []
        self.progressed = []
        self.asked = []
        self.requested = []
        self.logs = []
        self.title = ""
        self.values = {}

    def update(self, content: object, *, details: object = None) -> None:
        """Record the content unchanged."""
        super().update(content, details=details)
        self.updates.append(content)

    def stop(self, reason: str = "by the test") -> None:
        """Set `abort` with `reason`, default "by the test"; nothing is raised in the tool."""
        self.abort._set(reason)  # pyright: ignore[reportPrivateUsage]  the other half of the same class


class _Recorder:
    """The channel of a FakeContext: records what a worker would send."""

    def __init__(
        self, context: FakeContext, answers: Iterable[Answer], services: Mapping[str, Callable[..., object]]
    ) -> None:
        self._context = context
        self._answers = list(answers)
        self._services = services

    def tell(
        self,
        kind: Literal["update", "progress", "metadata", "log"],
        header: Mapping[str, Any],
        payload: bytes = b"",
        /,
    ) -> None:
        match kind:
            case "progress":
                self._context.progressed.append(Progressed(**header))
            case "metadata":
                self._context.title = header.get("title", self._context.title)
                self._context.values |= json.loads(payload)
            case "log":
                self._context.logs.append(Logged(**header))
            case "update":
                pass  # FakeContext keeps the content itself, which is easier to compare

    def ask(
        self, header: Mapping[str, Any], payload: bytes = b"", kind: Literal["ask", "request"] = "ask", /
    ) -> concurrent.futures.Future[Mapping[str, Any]]:
        future: concurrent.futures.Future[Mapping[str, Any]] = concurrent.futures.Future()
        future.set_result(
            self._answer(header, payload) if kind == "ask" else self._serve(header["service"], payload)
        )
        return future

    def _answer(self, header: Mapping[str, Any], payload: bytes) -> Mapping[str, Any]:
        self._context.asked.append(Asked(**header, details=json.loads(payload) if payload else None))
        answer = self._answers.pop(0) if self._answers else False
        return {"allowed": bool(answer), "always": answer == "always", "message": ""}

    def _serve(self, service: str, payload: bytes) -> Mapping[str, Any]:
        arguments = json.loads(payload)
        self._context.requested.append(Requested(service, arguments))
        serve = self._services.get(service)
        if serve is None:
            return {"result": b"", "message": f"test offers no service {service!r}"}
        try:
            return {"result": json.dumps(serve(**arguments)).encode(), "message": ""}
        except Exception as error:  # noqa: BLE001  as an adapter's failure is the tool's ToolError
            return {"result": b"", "message": f"{type(error).__name__}: {error}"}

    def wait(self, coroutine: Coroutine[Any, Any, T], /) -> T:
        return asyncio.run(coroutine)
