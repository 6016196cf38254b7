"""What `[enforce]` holds every user's configuration to: root's file says it, and nothing else loosens it.

A limit, the sandbox and the network of a tool are the fold of many layers; there `[enforce]` is the last one
(`resolution.layers`), so that neither a table nor a tool's file is above it. What no fold decides is held here: the trust
in projects, `[max]`, and where tools may come from. Of permission rules the strictest counts (`catalog.permissions`).

`HeldKey` is one key of a configuration that says more than is allowed; `config show`, `check` and `set` name it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args

from toolcell import _paths
from toolcelld.config.hosts import covered, network_entries
from toolcelld.config.permissions import Rules, has_tiers, last_match, stricter
from toolcelld.config.schema import PACKS, EnforceSection, Section, SourceSection, Trust
from toolcelld.files.paths import is_below_any

if TYPE_CHECKING:
    from toolcelld.config.load import Config

ENCLOSURES: Final = ("none", "baseline", "auto", "strict")
"""The sandboxes, the weakest first."""
TRUSTS: Final = ("all", *get_args(Trust)[:2])
"""The modes of trust, the loosest first."""
OF_CODE: Final = ("directory", "files", "mcp", "python", "programs", "runtime")
"""What of a source says which code its tools are."""
BUILT_IN: Final = ("project", "user", *PACKS)
PATHS: Final = ("readable", "writable")
"""The keys of profiles that open paths."""


@dataclass(frozen=True, slots=True)
class HeldKey:
    """A key that says more than `[enforce]` allows."""

    path: tuple[str, ...]
    by: str  # the key of [enforce]

    @property
    def why(self) -> str:
        """What holds it, as the subject of a sentence."""
        return enforced_by(self.by)


def enforced_by(key: str) -> str:
    """Return the origin of what a key of `[enforce]` decides."""
    return f"[enforce] {key} in {_paths.SYSTEM_CONFIG}"


def hold(config: Config, sources: Mapping[str, SourceSection]) -> Config:
    """Return a configuration within what its `[enforce]` allows, with each key that says more.

    Args:
        config: What the files say.
        sources: The sources that root's own file has, by name.
    """
    section = config.enforce
    said = section.model_fields_set
    if not said:
        return config
    found = [
        *_held_values(config),
        *_held_rules(config),
        *(_held_sources(config, sources) if section.sources is not None else ()),
    ]
    if "trust" in said:
        config = replace(config, trust=max(config.trust, section.trust, key=TRUSTS.index))
    limits = {
        name: limit_of(section, name)
        for name in section.max.model_fields_set
        if _more(getattr(config.max, name), limit_of(section, name))
    }
    config = replace(config, max=config.max.model_copy(update=limits))
    if section.sources is not None:
        config = _within_sources(config, section.sources, sources)
    return replace(config, held=tuple(found))


def _within_sources(config: Config, names: Iterable[str], own: Mapping[str, SourceSection]) -> Config:
    """Return a configuration without the tools and hooks that come from elsewhere."""
    names = frozenset(names)
    kept = {
        name: section if name in BUILT_IN else _code_of(section, own[name])
        for name, section in config.sources.items()
        if name in names
    }
    packs = tuple(pack for pack in config.daemon.packs if pack in names)
    return replace(
        config,
        sources=kept,
        daemon=config.daemon.model_copy(update={"packs": packs}),
        hooks=config.hooks if "user" in names else {},
    )


def _code_of(section: SourceSection, own: SourceSection) -> SourceSection:
    """Return a source whose code is that of root's own file."""
    return section.model_copy(update={name: getattr(own, name) for name in OF_CODE})


def _held_values(config: Config) -> Iterator[HeldKey]:
    """Yield the limits, sandboxes, networks and the trust that are looser than allowed."""
    section = config.enforce
    said = section.model_fields_set
    if "trust" in said and TRUSTS.index(config.trust) < TRUSTS.index(section.trust):
        yield HeldKey(("trust",), "trust")
    for place, table in _tables(config):
        for name, info in type(table).model_fields.items():
            key = info.alias or name
            value: Any = getattr(table, name)
            counts = name in table.model_fields_set or place[0] in ("defaults", "max")
            if name in section.max.model_fields_set and counts and _more(value, limit_of(section, name)):
                yield HeldKey((*place, key), f"max.{key}")
            if name not in table.model_fields_set:
                continue
            if name in ("sandbox", "base") and "sandbox" in said and _weaker(str(value), section.sandbox):
                yield HeldKey((*place, key), "sandbox")
            elif name == "sandbox" and str(value) == "none" and (by := _by_sandbox(section)):
                yield HeldKey((*place, key), by)
            if name in PATHS and (most := paths_of(section, name)) and most.barred(value):
                yield HeldKey((*place, key), most.by)
            if name == "network" and barred_hosts(section, network_entries(value)):
                yield HeldKey((*place, key), "network")


def _by_sandbox(section: EnforceSection) -> str:
    """Return the first key that only a sandbox holds, so that no tool runs without one; empty if there is none."""
    if "network" in section.model_fields_set:
        return "network"
    if (most := paths_of(section, "readable") or paths_of(section, "writable")) is not None:
        return most.by
    return "permissions" if has_tiers(section.permissions) else ""


def _held_rules(config: Config) -> Iterator[HeldKey]:
    """Yield the permission rules with the pattern, or the name, of a stricter one of root's."""
    enforced = config.enforce.permissions
    named: Rules = tuple(rule for rule in enforced if "/" not in rule[0] and rule[0][0] != "@")
    for pattern, action in config.permissions:
        found = [rule for rule in enforced if rule[0] == pattern]
        known = found[-1] if found else last_match(named, pattern, "", "exec")
        if known is not None and stricter(known[1], action):
            yield HeldKey(("permissions", pattern), f"permissions.{known[0]}")


def _tables(config: Config) -> Iterator[tuple[tuple[str, ...], Section]]:
    """Yield the tables that say how much a tool may have."""
    yield ("defaults",), config.defaults
    yield ("max",), config.max
    for kind, tables in (
        ("profile", config.profiles.items()),
        ("source", config.sources.items()),
        ("tool", config.rules),
    ):
        for name, table in tables:
            yield (kind, name), table


def _held_sources(config: Config, own: Mapping[str, SourceSection]) -> Iterator[HeldKey]:
    names = frozenset(config.enforce.sources or ())
    for name, section in config.sources.items():
        said = section.model_fields_set
        if name in names and name not in BUILT_IN:
            said = {
                key for key in said.intersection(OF_CODE) if getattr(section, key) != getattr(own[name], key)
            }
        elif name in names:
            continue
        yield from (HeldKey(("source", name, key), "sources") for key in sorted(said))
    if not names.issuperset(config.daemon.packs):
        yield HeldKey(("daemon", "packs"), "sources")
    if "user" not in names:
        for name, hook in config.hooks.items():
            yield from (HeldKey(("hooks", name, key), "sources") for key in sorted(_said(hook)))


def _said(section: Section) -> Iterator[str]:
    fields = type(section).model_fields
    yield from (fields[name].alias or name for name in section.model_fields_set)


def _weaker(name: str, least: str) -> bool:
    """Whether a sandbox is weaker than another; a profile is as strong as its base, which is looked at itself."""
    return name in ENCLOSURES and ENCLOSURES.index(name) < ENCLOSURES.index(least)


def limit_of(section: EnforceSection, name: str) -> float | None:
    """Return the most that a limit may be, by the name of its field; None for no bound."""
    value: float | None = getattr(section.max, name) if name in section.max.model_fields_set else None
    return value


def lowered(section: EnforceSection, name: str, value: float | None) -> float | None:
    """Return a limit within the most that it may be."""
    most = limit_of(section, name)
    return most if _more(value, most) else value


def _more(value: float | None, most: float | None) -> bool:
    return (math.inf if value is None else value) > (math.inf if most is None else most)


def barred_hosts(section: EnforceSection, entries: Iterable[str]) -> tuple[str, ...]:
    """Return the entries of a list of hosts that no tool may have."""
    if "network" not in section.model_fields_set:
        return ()
    allowed = network_entries(section.network)
    return tuple(entry for entry in entries if not covered(entry, allowed))


class MostPaths(NamedTuple):
    """The most that profiles may open, with all below."""

    by: str  # the key of [enforce]
    paths: tuple[str, ...]

    def barred(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Return those of some paths that are not within."""
        return tuple(path for path in paths if not is_below_any(path, self.paths))


def paths_of(section: EnforceSection, key: str) -> MostPaths | None:
    """Return what a key of profiles may open; None where it is not held.

    What can be written can be read: so `writable` adds to what is readable, and is held by it where it is not said itself.
    """
    said = section.model_fields_set
    if key == "readable":
        paths = tuple(dict.fromkeys((*section.readable, *section.writable)))
        return MostPaths(key, paths) if key in said else None
    if "writable" in said:
        return MostPaths("writable", section.writable)
    return MostPaths("readable", section.readable) if "readable" in said else None


def beyond_paths(section: EnforceSection, key: str, path: str) -> str:
    """Return the sentence for who wants a path opened, where no user's profile can; empty where one can."""
    most = paths_of(section, key)
    if most is None or not most.barred([path]):
        return ""
    return (
        f"The administrator of this machine does not allow profiles to open {path}: {enforced_by(most.by)}."
    )


def beyond(section: EnforceSection, entries: Iterable[str]) -> str:
    """Return the sentence for who wants these hosts, where no user can grant them; empty where one can."""
    barred = barred_hosts(section, entries)
    if not barred:
        return ""
    hosts = "" if "*" in barred else f" to {', '.join(barred)}"
    return f"The administrator of this machine does not allow the network{hosts}: {enforced_by('network')}."
