"""The sections of the configuration, as frozen models.

A key keeps its TOML name as an alias, the field carries the unit: `timeout` is `timeout_seconds`.
Whether a key was said at all is `model_fields_set`, which tells `memory = "off"` from silence.
`Declared` checks what a tool's file says with the same fields, so the two vocabularies cannot part.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Literal, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictBool

from toolcelld.quantities import optional, parse_bytes, parse_count, parse_seconds

__all__ = [
    "SECTIONS",
    "ConfigFile",
    "DaemonSection",
    "Declared",
    "DefaultsSection",
    "Isolation",
    "Keep",
    "LimitKeys",
    "MaxSection",
    "Section",
    "SourceSection",
    "SpillSection",
    "ToolSection",
]

Isolation = Literal["worker", "session", "call"]
Keep = Literal["head", "tail", "middle"]

_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_*?][A-Za-z0-9_*?]*")


def _strings(what: str, pattern: re.Pattern[str] | None = None) -> Callable[[object], tuple[str, ...]]:
    def parsed(value: object) -> tuple[str, ...]:
        items = cast("list[object]", value) if isinstance(value, list | tuple) else [None]
        strings = tuple(item for item in items if isinstance(item, str) and item)
        if len(strings) != len(items):
            raise ValueError(f'should be a list of {what}; write ["…", "…"]')
        for string in strings:
            if pattern is not None and not pattern.fullmatch(string):
                raise ValueError(f'should be a list of {what}, and "{string[:60]}" is none')
        return strings

    return parsed


def _hosts(value: object) -> bool | tuple[str, ...]:
    if isinstance(value, list | tuple):
        return _strings("host names")(cast("object", value))
    if isinstance(value, bool):
        return value
    raise ValueError("should be a list of host names, or True for all")


def _path(value: str) -> str:
    if "\0" in value or not value:
        raise ValueError("is no path")
    return os.path.expanduser(value)


def _absolute(value: str) -> str:
    if not os.path.isabs(value):
        raise ValueError('should be an absolute path; begin it with "/" or "~/"')
    return os.path.abspath(value)


def _at_most_an_hour(value: float) -> float:
    if value > 3600:
        raise ValueError('is longer than an hour; write "1h" or less')
    return value


Seconds = Annotated[float, BeforeValidator(parse_seconds)]
Bytes = Annotated[int, BeforeValidator(parse_bytes)]
Count = Annotated[int, BeforeValidator(parse_count)]
SecondsLimit = Annotated[float | None, BeforeValidator(optional(parse_seconds))]
BytesLimit = Annotated[int | None, BeforeValidator(optional(parse_bytes))]
CountLimit = Annotated[int | None, BeforeValidator(optional(parse_count))]
Names = Annotated[
    tuple[str, ...], BeforeValidator(_strings("names of environment variables", _ENVIRONMENT_NAME))
]
FilePath = Annotated[str, AfterValidator(_path)]


class Section(BaseModel):
    """A table whose keys are all known."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class LimitKeys(Section):
    """The eleven limits; unset says nothing, None is "off"."""

    timeout_seconds: SecondsLimit = Field(default=None, alias="timeout")
    queue_seconds: SecondsLimit = Field(default=None, alias="queue")
    cpu_seconds: SecondsLimit = Field(default=None, alias="cpu")
    idle_seconds: SecondsLimit = Field(default=None, alias="idle")
    memory_bytes: BytesLimit = Field(default=None, alias="memory")
    processes: CountLimit = None
    open_files: CountLimit = None
    file_size_bytes: BytesLimit = Field(default=None, alias="file_size")
    disk_bytes: BytesLimit = Field(default=None, alias="disk")  # in the private temporary directory
    output_lines: CountLimit = None
    output_bytes: BytesLimit = None


class ToolKeys(LimitKeys):
    """What both a tool's file and [tool.NAME] may say; unset says nothing."""

    isolation: Isolation = "worker"
    output: Keep = "head"
    read_only: StrictBool = False
    destructive: StrictBool = False
    idempotent: StrictBool = False


class Declared(ToolKeys):
    """What a tool's file says with the decorator, beside its name and description."""

    network: Annotated[bool | tuple[str, ...], BeforeValidator(_hosts)] = False
    secrets: Annotated[tuple[str, ...], BeforeValidator(_strings("names of secrets"))] = ()


class ToolSection(ToolKeys):
    """[tool.NAME]: what the person who runs the daemon says about a tool."""

    env: Names = ()
    enabled: StrictBool = True


class DaemonSection(Section):
    """[daemon]: the daemon itself."""

    workers: Count = 64  # alive at once, all tools together
    calls_per_session: Count = 8  # the rest wait, up to `queue`
    worker_idle_seconds: Seconds = Field(default=300.0, alias="worker_idle")
    abort_grace_seconds: Seconds = Field(default=2.0, alias="abort_grace")
    # For clients that name none; the contract allows an hour at most.
    linger_seconds: Annotated[Seconds, AfterValidator(_at_most_an_hour)] = Field(default=10.0, alias="linger")


class DefaultsSection(LimitKeys):
    """[defaults]: what holds where neither [tool.NAME] nor the file says anything."""

    timeout_seconds: SecondsLimit = Field(default=120.0, alias="timeout")
    queue_seconds: SecondsLimit = Field(default=30.0, alias="queue")
    memory_bytes: BytesLimit = Field(default=512 * 2**20, alias="memory")
    processes: CountLimit = 64
    open_files: CountLimit = 1024
    file_size_bytes: BytesLimit = Field(default=2**30, alias="file_size")
    # In `strict` the directory is made of memory, which half of the default memory can hold.
    disk_bytes: BytesLimit = Field(default=256 * 2**20, alias="disk")
    output_lines: CountLimit = 2000
    output_bytes: BytesLimit = 50_000
    isolation: Isolation = "worker"
    output: Keep = "head"
    env: Names = ("PATH", "HOME", "LANG", "LC_*", "TZ")


class MaxSection(LimitKeys):
    """[max]: the most that a file may ask for; what is not here has no such bound."""

    timeout_seconds: SecondsLimit = Field(default=3600.0, alias="timeout")
    queue_seconds: SecondsLimit = Field(default=3600.0, alias="queue")
    memory_bytes: BytesLimit = Field(default=4 * 2**30, alias="memory")
    processes: CountLimit = 1024
    open_files: CountLimit = 65_536
    file_size_bytes: BytesLimit = Field(default=64 * 2**30, alias="file_size")
    disk_bytes: BytesLimit = Field(default=16 * 2**30, alias="disk")
    output_lines: CountLimit = 100_000
    output_bytes: BytesLimit = 4 * 2**20  # about a million tokens; no model reads more


class SpillSection(Section):
    """[spill]: outputs beyond what the model reads."""

    bytes_per_call: Bytes = 64 * 2**20
    quota_bytes: Bytes = Field(default=2**30, alias="quota")
    retention_seconds: Seconds = Field(default=7 * 86_400.0, alias="retention")


class SourceSection(Section):
    """[source.NAME]: a directory of tools, its interpreter, and what passes through to its tools."""

    directory: Annotated[FilePath, AfterValidator(_absolute)] | None = None
    python: FilePath | None = None  # relative: to the session's directory in `project`, else to `directory`
    programs: Annotated[tuple[FilePath, ...], BeforeValidator(_strings("directories"))] = ()
    env: Names = ()


class ConfigFile(Section):
    """One file."""

    daemon: DaemonSection = DaemonSection()
    defaults: DefaultsSection = DefaultsSection()
    max: MaxSection = MaxSection()
    spill: SpillSection = SpillSection()
    source: Mapping[str, SourceSection] = {}
    tool: Mapping[str, ToolSection] = {}


SECTIONS: Mapping[str, type[Section]] = {
    "daemon": DaemonSection,
    "defaults": DefaultsSection,
    "max": MaxSection,
    "spill": SpillSection,
    "source": SourceSection,
    "tool": ToolSection,
}
