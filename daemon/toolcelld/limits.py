"""What a call may use, and who decided it.

One sentence decides every value: [tool.…] if it says so, else the file, else [defaults]; what a file asks
for is held under [max] and its source, and a call may only lower it. (No key of a source is a limit yet.)
"off" is None, and None is more than every number: a file that asks for "off" gets what [max] allows.

`resolve` also writes down where each value came from, for the message that tells how to change it.
It is pure and costs some ten microseconds: keep its answer for as long as catalog and configuration stay.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from pydantic import ValidationError

from toolcelld.config import Config, dotted, shown
from toolcelld.quantities import show_bytes, show_seconds
from toolcelld.sections import Declared, DefaultsSection, Isolation, Keep, LimitKeys, ToolSection

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

__all__ = [
    "KEYS",
    "NO_LIMITS",
    "DeclarationError",
    "Limits",
    "Setting",
    "Settings",
    "declare",
    "lower",
    "resolve",
]


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
"""What says nothing."""

# The configuration's word for each field: {"timeout": "timeout_seconds", …}.
KEYS: Mapping[str, str] = {info.alias or name: name for name, info in LimitKeys.model_fields.items()}


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
    env: tuple[str, ...]  # names and patterns of the variables that pass through
    enabled: bool
    read_only: bool
    destructive: bool
    idempotent: bool
    lines: tuple[Setting, ...]

    def origin(self, key: str) -> str:
        """Where the value of that key comes from."""
        return next(line.origin for line in self.lines if line.key == key)


class DeclarationError(ValueError):
    """A tool's file declares what cannot be; the text names the option and what to write."""


def declare(options: Mapping[str, object]) -> Declared:
    """What a tool's file declares, checked: it was read by a worker, and workers are not trusted."""
    try:
        return Declared.model_validate(
            {key: options[key] for key in options.keys() - {"name", "description"}}
        )
    except ValidationError as error:
        raise DeclarationError("; ".join(map(_sentence, error.errors(include_url=False)[:3]))) from error


def _sentence(problem: ErrorDetails) -> str:
    if problem["type"] == "extra_forbidden":
        return f"{str(problem['loc'][0])[:64]} is no option of a tool"
    message = str(problem.get("ctx", {}).get("error", problem["msg"]))
    return f"{problem['loc'][0]}={shown(problem['input'])} {message.replace('Input should be', 'should be')}"


def resolve(config: Config, tool: str, declared: Mapping[str, object], source: str) -> Settings:
    """The settings of a tool from that source. Raises `DeclarationError` for a declaration that cannot be."""
    file = declare(declared)
    rules = [(f"config [{dotted(('tool', name))}]", section) for name, section in config.rules_for(tool)]
    rules.reverse()  # the strongest first
    lines: list[Setting] = []

    def decide(key: str) -> Any:  # the value has the type of the field with that key
        value, origin = _decided(config, rules, file, KEYS.get(key, key))
        lines.append(Setting(key, _written(KEYS.get(key, key), value), origin))
        return value

    limits = Limits(**{name: decide(key) for key, name in KEYS.items()})
    env, origins = _granted_env(config, rules, source)
    return Settings(
        limits=limits,
        isolation=decide("isolation"),
        output=decide("output"),
        read_only=decide("read_only"),
        destructive=decide("destructive"),
        idempotent=decide("idempotent"),
        env=env,
        enabled=next((rule.enabled for _, rule in rules if "enabled" in rule.model_fields_set), True),
        lines=(*lines, Setting("env", json.dumps(env), origins)),
    )


Rules = Sequence[tuple[str, ToolSection]]


def _decided(config: Config, rules: Rules, file: Declared, name: str) -> tuple[Any, str]:
    """The value of a field and its origin, by the sentence at the top."""
    for origin, rule in rules:
        if name in rule.model_fields_set:
            return getattr(rule, name), origin
    if name in file.model_fields_set:
        asked, most = getattr(file, name), getattr(config.max, name, None)
        held = _least(asked, most) if name in LimitKeys.model_fields else asked
        return held, "file" if held == asked else "config [max]"
    if name in config.defaults.model_fields_set:
        return getattr(config.defaults, name), "config [defaults]"
    return getattr(config.defaults if name in DefaultsSection.model_fields else file, name), "default"


def _granted_env(config: Config, rules: Rules, source: str) -> tuple[tuple[str, ...], str]:
    """The variables that pass through: a grant adds to the one before it, as none can take PATH away by accident."""
    defaults = "config [defaults]" if "env" in config.defaults.model_fields_set else "default"
    section = config.sources.get(source)
    grants = [
        (defaults, config.defaults.env),
        (f"config [{dotted(('source', source))}]", section.env if section else ()),
    ]
    grants += [(origin, rule.env) for origin, rule in reversed(rules)]
    names = dict.fromkeys(name for _, granted in grants for name in granted)
    return tuple(names), ", ".join(
        dict.fromkeys(origin for origin, granted in grants if granted)
    ) or "default"


def _written(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float) or value is None:
        return show_bytes(cast("int | None", value)) if name.endswith("_bytes") else show_seconds(value)
    return str(value)


def lower(limits: Limits, by: Limits) -> Limits:
    """Those limits under the others: of each the smaller one; None in `by` says nothing."""
    if by is NO_LIMITS or limits is NO_LIMITS:  # most calls lower nothing
        return limits if by is NO_LIMITS else by
    return Limits(**{name: _least(getattr(limits, name), getattr(by, name)) for name in KEYS.values()})


def _least(first: Any, second: Any) -> Any:  # numbers of one type, or None for no limit
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)
