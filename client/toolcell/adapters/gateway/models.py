"""What goes over the gateway: requests, and the answers that are not an outcome.

The routes below `/api/tools` have the names of QraftBox's document, as in `inputSchema`; everything else has those of
`toolcell call --json`, as in `call_id`.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from toolcell.client import Catalog, Problem, ToolInfo

PATTERNS_MAX = 256
TIMEOUT_SECONDS_MAX = 1e9

Text = Annotated[str, StringConstraints(min_length=1, max_length=256)]


class _Documented(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class _RequestBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Tool(_Documented):
    """A tool."""

    name: str
    description: str
    source: Literal["builtin", "plugin"]
    """ "builtin" for a tool that ships with Toolcell."""
    plugin_name: str | None = None
    """The name of its plugin file; only for a tool of one."""
    input_schema: dict[str, Any]
    scope: str
    """ "local", "global", or the name of a source."""
    path: str
    read_only: bool
    destructive: bool | None = None
    idempotent: bool
    network: bool | None = None
    title: str
    ends_turn: bool
    output_schema: dict[str, Any] | None = None

    @classmethod
    def of(cls, info: ToolInfo) -> Tool:
        """From the catalog's."""
        source = "builtin" if info.source == "builtin" else "plugin"
        return cls.model_validate({**asdict(info), "source": source, "plugin_name": info.plugin or None})


class Counts(BaseModel):
    """How many tools there are."""

    total: int
    builtin: int
    plugin: int


class Tools(_Documented):
    """The tools of the directory."""

    tools: list[Tool]
    counts: Counts

    @classmethod
    def of(cls, catalog: Catalog) -> Tools:
        """From the catalog."""
        tools = [Tool.of(info) for info in catalog.tools.values()]
        return cls(tools=tools, counts=Counts.model_validate(catalog.counts))


class ToolError(_Documented):
    """A file or a tool that cannot be used."""

    source: str
    """The path of the file."""
    tool_name: str | None = None
    message: str

    @classmethod
    def of(cls, problem: Problem) -> ToolError:
        """From the catalog's."""
        return cls(source=problem.path, tool_name=problem.tool or None, message=problem.message)


class Reloaded(_Documented):
    """What a reload found; `success` says that it was done, also where a file has an error."""

    success: bool
    tool_count: int
    errors: list[ToolError]


class SessionRequest(_RequestBody):
    """Which tools a session sees."""

    allow: Annotated[list[Text], Field(max_length=PATTERNS_MAX)] = ["*"]
    """Patterns of names; default: all."""
    deny: Annotated[list[Text], Field(max_length=PATTERNS_MAX)] = []
    """Patterns of names that it does not see, whatever `allow` says; default: none."""


class SessionInfo(BaseModel):
    """An open session."""

    session: str
    directory: str
    tools: int
    calls: int
    """How many calls run in it."""


class CallRequest(_RequestBody):
    """A call."""

    tool: Text
    arguments: dict[str, Any] = {}
    timeout: Annotated[float, Field(gt=0, le=TIMEOUT_SECONDS_MAX, strict=False)] | None = None
    """Seconds from now until the call is stopped, the queue included; default: the configured limit."""


class CallInfo(BaseModel):
    """A running call."""

    call_id: str
    tool: str
    session: str | None


class OutcomeBody(BaseModel):
    """How a call ended: the object that `toolcell call --json` prints, and the id of the call."""

    model_config = ConfigDict(extra="allow")

    call_id: str
    kind: Literal[
        "ok",
        "tool_error",
        "invalid_arguments",
        "denied",
        "aborted",
        "timed_out",
        "limit_exceeded",
        "crashed",
        "refused",
        "internal",
    ]
    message: str
    content: list[dict[str, Any]]


class Fault(BaseModel):
    """Why a request was not served."""

    reason: str
    """For programs: "unknown_tool", "unavailable", …"""
    message: str
    remedy: str = ""


class FaultBody(BaseModel):
    """The body of every response that is no success."""

    error: Fault
