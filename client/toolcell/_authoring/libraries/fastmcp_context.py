"""A stand-in for FastMCP's `Context` and its dependencies, over the context of a Toolcell call."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any, Final, cast

from toolcell._context.context import ToolContext
from toolcell._results.errors import Denied, ToolError

__all__ = [
    "CURRENT",
    "AcceptedElicitation",
    "CancelledElicitation",
    "Context",
    "CurrentContext",
    "DeclinedElicitation",
    "Dependency",
    "Depends",
    "Progress",
    "get_access_token",
    "get_context",
    "get_http_headers",
]

CURRENT: ContextVar[Context] = ContextVar("context")
"""The context of the call that runs."""
STATES: dict[str, dict[str, Any]] = {}
"""What tools of this worker have set with `set_state`, by session; the worker's memory is a cache."""
LEVELS: Final = {"notice": "info", "alert": "critical", "emergency": "critical"}
"""Levels of MCP that `logging` does not have."""


SAMPLE_TOKENS: Final = 512
"""Of a completion whose length the tool leaves open; the library's own default."""


class AcceptedElicitation:
    """The user agreed."""

    action = "accept"

    def __init__(self, data: Any = None) -> None:
        self.data = data


class DeclinedElicitation:
    """The user refused, or there is none to ask."""

    action = "decline"


class CancelledElicitation:
    """The user closed the question."""

    action = "cancel"


def _answered(value: object) -> AcceptedElicitation | CancelledElicitation:
    return CancelledElicitation() if value is None else AcceptedElicitation(value)


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema with its enums in the places where they are used: a form has no definitions."""
    definitions = schema.pop("$defs", {})

    def inlined(part: Any) -> Any:
        if isinstance(part, list):
            return [inlined(each) for each in part]  # pyright: ignore[reportUnknownVariableType]  JSON
        if not isinstance(part, dict):
            return part
        found = cast("dict[str, Any]", part)
        used = definitions.get(str(found.get("$ref", "")).removeprefix("#/$defs/"), {})
        return {key: inlined(value) for key, value in {**used, **found}.items() if key != "$ref"}

    return cast("dict[str, Any]", inlined(schema))


def _message(said: Any) -> dict[str, Any]:
    """A message for a model: a text of the user's, or one of the library's with a text."""
    if isinstance(said, str):
        return {"role": "user", "content": {"type": "text", "text": said}}
    text = getattr(getattr(said, "content", None), "text", None)
    if not isinstance(text, str):
        raise ToolError("ctx.sample() takes texts, and messages whose content is a text.")
    return {"role": str(said.role), "content": {"type": "text", "text": text}}


class NotInContext(ToolError, AttributeError):
    """A member of FastMCP's context that is not here."""


# A subclass, so that a parameter with this annotation is recognised as the context.
class Context(ToolContext):
    """What a FastMCP tool gets as its context."""

    lifespan_context: Any = None
    """What the lifespan of the server has made for this call; None without one."""

    def __init__(self, call: ToolContext) -> None:
        self.__dict__.update(call.__dict__)
        self._call = call

    def __class_getitem__(cls, _: Any) -> type[Context]:
        return cls

    @property
    def request_context(self) -> Any:
        """The request, as far as there is one."""
        return SimpleNamespace(
            request_id=self._call.call_id, lifespan_context=self.lifespan_context, meta=None, request=None
        )

    @property
    def request_id(self) -> str:
        return self._call.call_id

    @property
    def client_id(self) -> str | None:
        """The program that calls."""
        return self._call.agent or None

    @property
    def transport(self) -> str:
        """How the library would be connected to a host that starts it."""
        return "stdio"

    # The library's own names and parameters; `update`, `ask`, `exec` of Toolcell's context are there as well.

    async def log(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        self, message: str, level: str = "info", logger_name: str | None = None, extra: Any = None, **_: Any
    ) -> None:
        """Log a message."""
        if message in LEVELS or message in {"debug", "info", "warning", "error", "critical"}:
            message, level = level, message  # the order of `mcp`
        logger = self._call.log if logger_name is None else self._call.log.getChild(logger_name)
        text = f"{message} {extra}" if extra else str(message)
        getattr(logger, LEVELS.get(level, level), logger.info)("%s", text)

    async def debug(self, message: str, *_: Any, **extra: Any) -> None:
        """Log a message of the level debug."""
        await self.log(message, "debug", **extra)

    async def info(self, message: str, *_: Any, **extra: Any) -> None:
        """Log a message of the level info."""
        await self.log(message, "info", **extra)

    async def warning(self, message: str, *_: Any, **extra: Any) -> None:
        """Log a message of the level warning."""
        await self.log(message, "warning", **extra)

    async def error(self, message: str, *_: Any, **extra: Any) -> None:
        """Log a message of the level error."""
        await self.log(message, "error", **extra)

    async def report_progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report progress, in steps of the tool's choice."""
        self._call.progress(progress, total, message or "")

    async def elicit(self, message: str, response_type: Any = None, schema: Any = None, **_: Any) -> Any:
        """Ask the user for agreement, a text (`str`), one of several (a list), or, of MCP hosts, a value or a form.

        Returns:
            `AcceptedElicitation` with `data`, `DeclinedElicitation`, or `CancelledElicitation`.

        Raises:
            ToolError: The agent cannot ask for that.
        """
        wanted = response_type if response_type is not None else schema
        if wanted is str:
            return _answered(await self._call.ui.input(message))
        if isinstance(wanted, list) and all(isinstance(one, str) for one in cast("list[object]", wanted)):
            return _answered(await self._call.ui.select(message, cast("list[str]", wanted)))
        if wanted is not None and wanted is not bool:
            return await self._form(message, wanted)
        try:
            await self._call.ask(message)
        except Denied:
            return DeclinedElicitation()
        return AcceptedElicitation(True if wanted is bool else {})

    async def _form(self, message: str, wanted: Any) -> Any:
        """Ask for a value of a type: of a model with its fields, else with one field."""
        from pydantic import TypeAdapter, ValidationError

        adapter: TypeAdapter[Any] = TypeAdapter(wanted)
        schema = _inlined(adapter.json_schema())
        whole = schema.get("type") == "object"
        if not whole:
            schema = {"type": "object", "properties": {"value": schema}, "required": ["value"]}
        try:
            said = await self._host("elicitation/create", message=message, requestedSchema=schema)
        except ToolError as error:
            raise ToolError(
                f"The tool asks the user for a value ({message!r}), and only yes and no, a text, or one of several "
                f"texts can be asked for here. {error}"
            ) from error
        if said["action"] != "accept":
            return DeclinedElicitation() if said["action"] == "decline" else CancelledElicitation()
        content: dict[str, Any] = said.get("content") or {}
        try:
            return AcceptedElicitation(adapter.validate_python(content if whole else content.get("value")))
        except ValidationError as error:
            raise ToolError(f"The user's answer to {message!r} does not fit: {error}") from error

    async def sample(
        self,
        messages: Any,
        system_prompt: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        model_preferences: Any = None,
        **more: Any,
    ) -> Any:
        """Ask the model of an MCP host for a completion, and return it with `text`.

        Raises:
            ToolError: The agent does not lend its model, or more than a text is wanted.
        """
        if any(value is not None for value in more.values()):
            raise ToolError(f"ctx.sample() takes no {', '.join(more)} here: the answer is a text.")
        said = [messages] if isinstance(messages, str) else messages
        hints = [model_preferences] if isinstance(model_preferences, str) else model_preferences
        params = {
            "messages": [_message(one) for one in said],
            "maxTokens": max_tokens or SAMPLE_TOKENS,
            "systemPrompt": system_prompt,
            "temperature": temperature,
            "modelPreferences": {"hints": [{"name": name} for name in hints]} if hints else None,
        }
        known = {name: value for name, value in params.items() if value is not None}
        answer = await self._host("sampling/createMessage", **known)
        text = answer["content"].get("text", "")
        return SimpleNamespace(type="text", text=text, result=text, model=answer["model"])

    async def list_roots(self) -> list[Any]:
        """Return the roots of an MCP host, each with `uri` and `name`. Raises ToolError if the agent has none."""
        roots = (await self._host("roots/list"))["roots"]
        return [SimpleNamespace(uri=root["uri"], name=root.get("name")) for root in roots]

    async def _host(self, method: str, **params: Any) -> Any:
        """Ask an MCP host, see `mcp.input` in docs/agents/mcp.md."""
        request = {"method": method, **({"params": params} if params else {})}
        return (await self._call.request("mcp.input", asked=request))["asked"]

    async def set_state(self, key: str, value: Any, **_: Any) -> None:
        """Keep a value for later calls of this session in this worker."""
        STATES.setdefault(self._call.session_id, {})[key] = value

    async def get_state(self, key: str) -> Any:
        """Return what `set_state` has kept, or None."""
        return STATES.get(self._call.session_id, {}).get(key)

    async def delete_state(self, key: str) -> None:
        """Forget what `set_state` has kept."""
        STATES.get(self._call.session_id, {}).pop(key, None)

    async def send_notification(self, *_: Any, **__: Any) -> None:
        """Do nothing: the tools of a Toolcell session are watched by the daemon."""

    send_tool_list_changed = send_resource_list_changed = send_prompt_list_changed = send_notification

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotInContext(f"The tool uses Context.{name} of FastMCP, which only a FastMCP server has.")


class Dependency:
    """A value that a parameter gets when the tool is called, and that the model does not see."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    async def resolve(self, stack: contextlib.AsyncExitStack) -> Any:
        """Return the value; what has to be closed after the call is entered into `stack`."""
        value = self._make()
        if inspect.isawaitable(value):
            value = await value
        if hasattr(value, "__aenter__"):
            return await stack.enter_async_context(value)
        return stack.enter_context(value) if hasattr(value, "__enter__") else value


class Progress:
    """The progress of a call: the default of a parameter, `Progress()`."""

    def __init__(self) -> None:
        self._done = 0.0
        self._total: float | None = None

    async def set_total(self, total: float) -> None:
        """Set the number of steps."""
        self._total = total
        get_context().progress(self._done, total)

    async def increment(self, amount: float = 1) -> None:
        """Report that steps were done."""
        self._done += amount
        get_context().progress(self._done, self._total)

    async def set_message(self, message: str | None) -> None:
        """Report what is being done."""
        get_context().progress(self._done, self._total, message or "")


def Depends(dependency: Callable[[], Any], **_: Any) -> Any:  # noqa: N802  the library's name
    """Return a default for a parameter that is made for each call."""
    return Dependency(dependency)


def CurrentContext() -> Any:  # noqa: N802  the library's name
    """Return a default for a parameter that gets the context."""
    return Dependency(get_context)


def get_context() -> Context:
    """Return the context of the call that runs; raises `RuntimeError` outside of one."""
    try:
        return CURRENT.get()
    except LookupError:
        raise RuntimeError("No active context found: get_context() works within a call of a tool.") from None


def get_access_token() -> None:
    """Return None: the agent's calls carry no token of a web service."""


def get_http_headers(*_: Any, **__: Any) -> dict[str, str]:
    """Return nothing: a call is no HTTP request."""
    return {}
