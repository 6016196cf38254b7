"""The limits and switches of a tool, and who decided them; what it may do is decided in `access`.

[tool.…] decides if it says something, else the file, else [defaults], else the preset of another system. What a file asks
for is held under [max], and for the tool of an untrusted project under [defaults]; a call may only lower it. Over all of
it is [enforce.max].
"off" is None, and None is more than every number: a file that asks for "off" gets what [max] allows.

`resolve` also writes down where each value comes from, for the message that tells how to change it. It is pure, and takes
longer than a small call: keep its answer for as long as catalog and configuration stay.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, cast

from toolcell._units import show_bytes, show_seconds
from toolcelld.config.hosts import network_value
from toolcelld.config.load import Config
from toolcelld.config.project_file import ASKS_NOTHING, ProjectFile
from toolcelld.config.resolution.access import NOTHING, Access, decide
from toolcelld.config.resolution.declaration import NO_PRESET, Preset, declare
from toolcelld.config.resolution.layers import (
    ALLOWS,
    Layer,
    Origins,
    Says,
    Standing,
    enforced_limits,
    fold,
    of,
    rules,
    said,
)
from toolcelld.config.schema import (
    Declared,
    DefaultsSection,
    EnforceSection,
    Isolation,
    Keep,
    LimitKeys,
    ToolSection,
)
from toolcelld.flavours import Notice


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The eleven limits; None is no limit."""

    timeout_seconds: float | None = None
    queue_seconds: float | None = None
    cpu_seconds: float | None = None
    idle_seconds: float | None = None
    memory_bytes: int | None = None
    processes: int | None = None
    open_files: int | None = None
    file_size_bytes: int | None = None
    disk_bytes: int | None = None
    output_lines: int | None = None
    output_bytes: int | None = None


NO_LIMITS = Limits()
"""No limit is set."""

# The configuration's word for each field: {"timeout": "timeout_seconds", …}.
KEYS: Mapping[str, str] = {info.alias or name: name for name, info in LimitKeys.model_fields.items()}
SWITCHES = ("isolation", "output", "notice", "read_only", "destructive", "idempotent", "concurrency")
"""The other keys of `Settings`; the last is for [tool.…] alone, as a file does not know the tools beside it."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One value that applies to a tool, as it would be written, and where it comes from."""

    key: str
    value: str
    origin: str  # "default", "config [defaults]", "file", "config [tool.lint]", "config [max]"


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that applies to the calls of one tool."""

    limits: Limits
    isolation: Isolation
    output: Keep
    enabled: bool
    read_only: bool
    destructive: bool
    idempotent: bool
    lines: tuple[Setting, ...]
    notice: Notice = "plain"  # the words that say that an output was truncated
    concurrency: int | None = None  # calls at once, of all sessions together
    access: Access = NOTHING  # what it may do
    needs: Access = NOTHING  # what its file and its project ask for
    # The limits that it would have if it were trusted, by key
    held: Mapping[str, str] = field(default_factory=dict[str, str])
    grant: str = ""  # the command that trusts it; empty where its trust is complete
    enforce: EnforceSection = field(default_factory=EnforceSection.default)  # what no user can loosen

    def origin(self, key: str) -> str:
        """Where the value of that key comes from."""
        return next(line.origin for line in self.lines if line.key == key)


def resolve(
    config: Config,
    tool: str,
    declared: Mapping[str, object],
    source: str,
    standing: Standing = Standing.FULL,
    most: Says = MappingProxyType({}),
    asked: ProjectFile = ASKS_NOTHING,
    preset: Preset = NO_PRESET,
) -> Settings:
    """Return the settings of a tool.

    Args:
        config: The configuration.
        tool: The name of the tool.
        declared: The options that its file declares.
        source: The name of its source.
        standing: What the rules by name may give it.
        most: The most of what it asks for that the trust in its project allows; empty for the user's own tools.
        asked: What the configuration of its project asks for all tools of the project; its limits are as if the file had
            declared them.
        preset: Replaces our own defaults.

    Raises:
        DeclarationError: The declaration is invalid.
    """
    file = declare({**asked.limits.model_dump(by_alias=True, exclude_unset=True), **declared})
    origins = fold(_layers(config, tool, file, standing, preset))
    held = _held(origins, config, tool, file, preset) if standing is Standing.UNTRUSTED else {}
    values: dict[str, Any] = {name: next(iter(by)) for name, by in origins.items()}
    # What is shown is what it would get, also where a need is not granted.
    access, needs, wanted = decide(config, tool, file, source, asked, standing, most)
    return Settings(
        limits=Limits(**{name: values.pop(name) for name in KEYS.values()}),
        **values,
        enabled=config.is_enabled(tool),
        lines=(
            *(
                Setting(key, _written(name, *origins[name]), _origin(key, held, *origins[name].values()))
                for key, name in (*KEYS.items(), *zip(SWITCHES, SWITCHES, strict=True))
            ),
            Setting("env", json.dumps(wanted.env), wanted.origin("env")),
            Setting("sandbox", wanted.sandbox, wanted.origin("enclosure")),
            Setting("network", json.dumps(network_value(wanted.network)), wanted.origin("network")),
            Setting("secrets", json.dumps(wanted.secrets), wanted.origin("secrets")),
        ),
        access=access,
        needs=needs,
        held=held,
        enforce=config.enforce,
    )


def _held(origins: Origins, config: Config, tool: str, file: Declared, preset: Preset) -> dict[str, str]:
    """Return the limits that are higher for a trusted tool, as they would be written."""
    trusted = fold(_layers(config, tool, file, Standing.FULL, preset))
    return {
        key: _written(name, *trusted[name])
        for key, name in KEYS.items()
        if ALLOWS[name](next(iter(trusted[name]))) > ALLOWS[name](next(iter(origins[name])))
    }


def _origin(key: str, held: Mapping[str, str], origin: str) -> str:
    return f"{origin}; {held[key]} is held until the tool is trusted" if key in held else origin


def _layers(config: Config, tool: str, file: Declared, standing: Standing, preset: Preset) -> Iterator[Layer]:
    """Yield who decides the limits and switches of a tool, the strongest last."""
    keys, limits = {*SWITCHES, *LimitKeys.model_fields}, {*LimitKeys.model_fields}
    defaults, asked = config.defaults, limits & file.model_fields_set
    ours = {**of(ToolSection.default(), keys), **of(defaults, keys & {*DefaultsSection.model_fields})}
    yield "default", ours, True
    yield f"flavour {preset.name}", preset.values, True
    yield "config [max]", of(config.max, limits & preset.values.keys()), False
    yield "config [defaults]", said(defaults, keys), True
    yield "file", said(file, keys), True
    yield "config [max]", of(config.max, asked), False
    if standing is Standing.UNTRUSTED:
        yield "config [defaults]", of(defaults, asked), False
    held = () if standing is Standing.FULL else ALLOWS
    for origin, says in rules(config, tool, keys):
        yield origin, {name: value for name, value in says.items() if name in held}, False
        yield origin, {name: value for name, value in says.items() if name not in held}, True
    yield from enforced_limits(config)


def _written(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float) or value is None:
        return shown_limit(name, value)
    return str(value)


def shown_limit(name: str, value: float | None) -> str:
    """Return a limit as a file would say it, by the name of its field: "2m", "512MiB", "64", "off"."""
    if name.endswith("_seconds"):
        return show_seconds(value)
    if name.endswith("_bytes") or value is None:
        return show_bytes(cast("int | None", value))
    return f"{value:g}"


def lower(limits: Limits, by: Limits) -> Limits:
    """Those limits under the others: of each the smaller one; None in `by` says nothing."""
    if by is NO_LIMITS or limits is NO_LIMITS:  # most calls lower nothing
        return limits if by is NO_LIMITS else by
    return Limits(**{name: _least(getattr(limits, name), getattr(by, name)) for name in KEYS.values()})


def _least(first: Any, second: Any) -> Any:  # numbers of one type, or None for no limit
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)
