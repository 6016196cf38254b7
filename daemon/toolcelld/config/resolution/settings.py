"""What a call may use, and who decided it.

One sentence decides every value: [tool.…] if it says so, else the file, else [defaults]; what a file asks
for is held under [max] and its source, and a call may only lower it. (No key of a source is a limit yet.)
"off" is None, and None is more than every number: a file that asks for "off" gets what [max] allows.

A rule by name is written for the user's own tool, and any repository may have a tool of that name. So for the tool of
an untrusted project a rule can only tighten, and what the file asks for is held under [defaults]; see `Standing`.

`resolve` also writes down where each value came from, for the message that tells how to change it.
It is pure and costs some ten microseconds: keep its answer for as long as catalog and configuration stay.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from toolcell._units import show_bytes, show_seconds
from toolcelld.config.load import Config, dotted
from toolcelld.config.project_file import ASKS_NOTHING, ProjectFile
from toolcelld.config.resolution.declaration import NO_PRESET, Preset, declare
from toolcelld.config.resolution.grants import NOTHING, Grant
from toolcelld.config.resolution.layers import Standing
from toolcelld.config.schema import (
    Declared,
    DefaultsSection,
    Isolation,
    Keep,
    LimitKeys,
    ProfileSection,
    ToolSection,
)
from toolcelld.flavours import Notice
from toolcelld.sandbox.policy import Enclosure

__all__ = [
    "KEYS",
    "NO_LIMITS",
    "Limits",
    "Setting",
    "Settings",
    "Standing",
    "lower",
    "resolve",
    "shown_limit",
    "with_env",
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
"""No limit is set."""

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
    notice: Notice = "plain"  # the words that say that an output was truncated
    concurrency: int | None = None  # calls at once, of all sessions together
    sandbox: str = "auto"  # as configured: the name of a profile, ours or one's own
    sandbox_least: Enclosure = "none"  # what the file insists on
    profile: ProfileSection | None = None  # the one that `sandbox` names, where it is one's own
    needs: Grant = NOTHING  # what the file asks for
    granted: Grant = NOTHING  # what [tool.NAME] and the profile give, whether it asks or not
    network_said: bool = False  # one of them spoke of the network, and that is the last word
    network_most: bool | tuple[str, ...] = True  # what rules that can only tighten leave of the network
    programs: bool = True  # whether it may start programs

    def origin(self, key: str) -> str:
        """Where the value of that key comes from."""
        return next(line.origin for line in self.lines if line.key == key)


def resolve(
    config: Config,
    tool: str,
    declared: Mapping[str, object],
    source: str,
    standing: Standing = Standing.FULL,
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
        asked: What the configuration of its project asks for all tools of the project. The variables are given by
            name alone, so they are as a rule that grants them; the rest is as if the file had declared it.
        preset: Replaces our own defaults.

    Raises:
        DeclarationError: The declaration is invalid.
    """
    file = declare({**asked.limits.model_dump(by_alias=True, exclude_unset=True), **declared})
    rules = [(f"config [{dotted(('tool', name))}]", section) for name, section in config.rules_for(tool)]
    rules.reverse()  # the strongest first
    lines: list[Setting] = []

    def decide(key: str) -> Any:  # the value has the type of the field with that key
        value, origin = _decided(config, rules, file, preset, KEYS.get(key, key), standing)
        lines.append(Setting(key, _written(KEYS.get(key, key), value), origin))
        return value

    limits = Limits(**{name: decide(key) for key, name in KEYS.items()})
    loosening = rules if standing is Standing.FULL else ()
    sandbox, sandbox_origin = _sandbox(config, loosening, source)
    least: Enclosure = file.sandbox if "sandbox" in file.model_fields_set else "none"
    programs = True
    if standing is not Standing.FULL:
        sandbox, sandbox_origin, least, programs = _tightened(config, rules, sandbox, sandbox_origin, least)
    profile = config.profiles.get(sandbox)
    concurrency, concurrency_origin = _concurrency(rules)
    env, origins = _granted_env(
        config, loosening, source, profile, asked if standing is Standing.FULL else ASKS_NOTHING
    )
    granted, network_origin, secrets_origin = _granted(loosening, profile, sandbox)
    own = Grant(file.network, file.secrets)
    needs = own.beside(Grant(asked.network, asked.secrets))
    both = granted.beside(needs)
    return Settings(
        limits=limits,
        isolation=decide("isolation"),
        output=decide("output"),
        notice=decide("notice"),
        read_only=decide("read_only"),
        destructive=decide("destructive"),
        idempotent=decide("idempotent"),
        env=env,
        enabled=config.is_enabled(tool),
        lines=(
            *lines,
            Setting("concurrency", _written("concurrency", concurrency), concurrency_origin),
            Setting("env", json.dumps(env), origins),
            Setting("sandbox", sandbox, sandbox_origin),
            Setting(
                "network",
                json.dumps((granted if network_origin else both).network),
                network_origin or _asked(own.network, needs.network),
            ),
            Setting(
                "secrets", json.dumps(both.secrets), secrets_origin or _asked(own.secrets, needs.secrets)
            ),
        ),
        concurrency=concurrency,
        sandbox=sandbox,
        sandbox_least=least,
        profile=profile,
        needs=needs,
        granted=granted,
        network_said=bool(network_origin),
        network_most=_network_most(() if standing is Standing.FULL else rules),
        programs=programs and file.programs and (profile is None or profile.programs),
    )


def with_env(settings: Settings, names: Sequence[str]) -> Settings:
    """Return the settings with more variables, which were shown when the project was trusted."""
    more = tuple(name for name in names if name not in settings.env)
    if not more:
        return settings
    env = (*settings.env, *more)
    lines = (
        Setting("env", json.dumps(env), f"{line.origin}, trusted") if line.key == "env" else line
        for line in settings.lines
    )
    return replace(settings, env=env, lines=tuple(lines))


Rules = Sequence[tuple[str, ToolSection]]


_RESTRICTING: Final[Mapping[str, bool]] = {"read_only": True, "destructive": True, "idempotent": False}
"""The value of a switch that takes something away."""


def _decided(
    config: Config,
    rules: Rules,
    file: Declared,
    preset: Preset,
    name: str,
    standing: Standing = Standing.FULL,
) -> tuple[Any, str]:
    """The value of a field and its origin, by the sentences at the top."""
    said = [(getattr(rule, name), origin) for origin, rule in rules if name in rule.model_fields_set]
    if standing is Standing.FULL or (name not in _RESTRICTING and name not in LimitKeys.model_fields):
        return said[0] if said else _without_rules(config, file, preset, name, config.max, "config [max]")
    bound, where = (
        (config.defaults, "config [defaults]")
        if standing is Standing.UNTRUSTED
        else (config.max, "config [max]")
    )
    value, origin = _without_rules(config, file, preset, name, bound, where)
    for other, other_origin in said:
        tighter = other == _RESTRICTING[name] if name in _RESTRICTING else _least(value, other) != value
        if tighter:
            value, origin = other, other_origin
    return value, origin


def _without_rules(
    config: Config, file: Declared, preset: Preset, name: str, bound: LimitKeys, where: str
) -> tuple[Any, str]:
    if name in file.model_fields_set:
        asked, most = getattr(file, name), getattr(bound, name, None)
        held = (
            _least(_least(asked, most), getattr(config.max, name))
            if name in LimitKeys.model_fields
            else asked
        )
        return held, "file" if held == asked else where
    if name in config.defaults.model_fields_set:
        return getattr(config.defaults, name), "config [defaults]"
    if name in preset.values:
        value = preset.values[name]
        held = _least(value, getattr(config.max, name)) if name in LimitKeys.model_fields else value
        return held, f"flavour {preset.name}"
    return getattr(config.defaults if name in DefaultsSection.model_fields else file, name), "default"


def _concurrency(rules: Rules) -> tuple[int | None, str]:
    """How many calls may run at once: for who runs the daemon to say, as the tool's file does not know its neighbours."""
    for origin, rule in rules:
        if "concurrency" in rule.model_fields_set:
            return rule.concurrency, origin
    return None, "default"


def _sandbox(config: Config, rules: Rules, source: str) -> tuple[str, str]:
    """The configured sandbox: of the tool, else of its source, else the default. A file has no say in this."""
    for origin, rule in rules:
        if "sandbox" in rule.model_fields_set:
            return rule.sandbox, origin
    section = config.sources.get(source)
    if section is not None and "sandbox" in section.model_fields_set:
        return section.sandbox, f"config [{dotted(('source', source))}]"
    said = "sandbox" in config.defaults.model_fields_set
    return config.defaults.sandbox, "config [defaults]" if said else "default"


def _tightened(
    config: Config, rules: Rules, sandbox: str, origin: str, least: Enclosure
) -> tuple[str, str, Enclosure, bool]:
    """The sandbox and its origin, the least enclosure, and whether programs may start, where rules can only tighten."""
    programs = True
    for other_origin, rule in rules:
        if "sandbox" not in rule.model_fields_set:
            continue
        profile = config.profiles.get(rule.sandbox)
        programs = programs and (profile is None or profile.programs)
        base = rule.sandbox if profile is None else profile.base
        if base == "strict":
            least, origin = "strict", other_origin
        elif base == "baseline" and least == "none":
            least, origin = "baseline", other_origin
        elif base == "auto" and sandbox == "none":
            sandbox, origin = "auto", other_origin
    return sandbox, origin, least, programs


def _granted(rules: Rules, profile: ProfileSection | None, sandbox: str) -> tuple[Grant, str, str]:
    """Return what is granted by name, and by which rules: the strongest one decides the network; secrets add up."""
    network: bool | tuple[str, ...] = False
    network_origin = ""
    for origin, rule in rules:
        if "network" in rule.model_fields_set:
            network, network_origin = rule.network, origin
            break
    else:
        if profile is not None and "network" in profile.model_fields_set:
            network, network_origin = profile.network, f"config [{dotted(('profile', sandbox))}]"
    secrets = [(origin, rule.secrets) for origin, rule in rules if rule.secrets]
    if profile is not None and profile.secrets:
        secrets.append((f"config [{dotted(('profile', sandbox))}]", profile.secrets))
    names = tuple(dict.fromkeys(name for _, granted in secrets for name in granted))
    return Grant(network, names), network_origin, ", ".join(origin for origin, _ in secrets)


def _network_most(rules: Rules) -> bool | tuple[str, ...]:
    most = Grant(True)
    for _, rule in rules:
        if "network" in rule.model_fields_set:
            most = most.within(Grant(rule.network))
    return most.network


def _asked(by_file: object, together: object) -> str:
    return f"asked for by the {'file' if by_file else 'project'}" if together else "default"


def _granted_env(
    config: Config, rules: Rules, source: str, profile: ProfileSection | None, asked: ProjectFile
) -> tuple[tuple[str, ...], str]:
    """The variables that pass through: a grant adds to the one before it, as none can take PATH away by accident."""
    defaults = "config [defaults]" if "env" in config.defaults.model_fields_set else "default"
    section = config.sources.get(source)
    grants = [
        (defaults, config.defaults.env),
        (f"config [{dotted(('source', source))}]", section.env if section else ()),
    ]
    grants.append(("config [profile]", profile.env if profile else ()))
    grants.append(("asked for by the project", asked.env))
    grants += [(origin, rule.env) for origin, rule in reversed(rules)]
    names = dict.fromkeys(name for _, granted in grants for name in granted)
    return tuple(names), ", ".join(
        dict.fromkeys(origin for origin, granted in grants if granted)
    ) or "default"


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
