"""Who decides what applies to a tool: layers, and the one fold over them.

A layer has an origin, what it says, and whether it may loosen. One that may loosen adds to a list and replaces any other
value; one that may not can only take away. The strongest is the last.

A rule by name, [tool.PATTERN] or [tool.NAME], is written for the user's own tool, and any repository may have a tool of
that name. So for the tool of a project it may loosen only what was shown when the project was trusted; see `Standing`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Final, TypeAlias, cast

from toolcelld.config.enforcement import PATHS, enforced_by, paths_of
from toolcelld.config.hosts import WHOLE, covered, network_entries
from toolcelld.config.load import Config
from toolcelld.config.mistakes import dotted
from toolcelld.config.permissions import has_tiers
from toolcelld.config.schema import LimitKeys, Section
from toolcelld.files.paths import is_below_any

Says: TypeAlias = Mapping[str, Any]
"""What a layer says, by field; a field that is not there is as the layers before it have it."""
Layer: TypeAlias = tuple[str, Says, bool]
"""The origin, what it says, and whether it may loosen."""
Origins: TypeAlias = Mapping[str, Mapping[Any, str]]
"""For each field its entries, or its one value, each with the layer that it is from. An empty list has "" alone, with the
layer that emptied it."""

# How much a value allows, of the fields whose values can be compared.
ALLOWS: Final[Mapping[str, Callable[[Any], float]]] = {
    **dict.fromkeys(LimitKeys.model_fields, lambda limit: math.inf if limit is None else limit),
    **dict.fromkeys(("read_only", "destructive"), operator.not_),
    **dict.fromkeys(("idempotent", "programs", "listen"), bool),
    "enclosure": ("strict", "auto", "baseline", "none").index,
}


class Standing(Enum):
    """What the rules by name may give a tool."""

    FULL = "full"
    """The user's own tool, or a trusted project's as it was shown: rules hold as they are written."""
    CHANGED = "changed"
    """A trusted project's tool that would get more than was shown: rules can only tighten."""
    UNTRUSTED = "untrusted"
    """The tool of an untrusted project: rules can only tighten, and its limits are held under [defaults]."""


def fold(layers: Iterable[Layer]) -> Origins:
    """Return what layers come to; the first one says every field."""
    found: dict[str, dict[Any, str]] = {}
    last: dict[str, str] = {}
    for origin, says, may_loosen in layers:
        for name, value in says.items():
            before, new = found.get(name, {}), _entries(value, origin)
            if not may_loosen:
                after = _held(name, before, new, is_list=isinstance(value, tuple))
            else:
                after = {**before, **new, **before} if isinstance(value, tuple) else new
                after = {WHOLE: after[WHOLE]} if name == "network" and WHOLE in after else after
            if may_loosen or after != before:
                found[name], last[name] = after, origin
    return {name: by or {"": last[name]} for name, by in found.items()}


def _entries(value: object, origin: str) -> dict[Any, str]:
    return dict.fromkeys(cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,), origin)


_COVERED: Final[Mapping[str, Callable[[str, Iterable[str]], bool]]] = {
    "network": covered,
    **dict.fromkeys(PATHS, is_below_any),
}
"""Of lists whose entries may have others within: whether an entry is within any of some."""


def _held(name: str, before: dict[Any, str], most: dict[Any, str], *, is_list: bool) -> dict[Any, str]:
    """Return what of a field is within the most that a layer allows."""
    if (within := _COVERED.get(name)) is not None:
        narrower = {entry: origin for entry, origin in most.items() if within(entry, before)}
        return narrower | {entry: origin for entry, origin in before.items() if within(entry, most)}
    if is_list:
        return {entry: origin for entry, origin in before.items() if entry in most}
    allows = ALLOWS.get(name)
    return before if allows is None else min(before, most, key=lambda by: allows(next(iter(by))))


def enforced(config: Config) -> Iterator[Layer]:
    """Yield the layers of `[enforce]` for what a tool may do; they come last."""
    section, keys = config.enforce, config.enforce.model_fields_set
    if "network" in keys and section.network is not True:
        # Without a sandbox nothing withholds a network, and who accepts connections has it whole.
        says = {"network": network_entries(section.network), "listen": False, "enclosure": "baseline"}
        yield enforced_by("network"), says, False
    for key in PATHS:  # as with the network
        if (most := paths_of(section, key)) is not None:
            yield enforced_by(most.by), {key: most.paths, "enclosure": "baseline"}, False
    if has_tiers(section.permissions):  # what a tool may do is what its cell enforces
        yield enforced_by("permissions"), {"enclosure": "baseline"}, False
    if "sandbox" in keys:
        yield enforced_by("sandbox"), {"enclosure": section.sandbox}, False


def enforced_limits(config: Config) -> Iterator[Layer]:
    """Yield the layers of `[enforce.max]`, one for each limit, so that each names its own key."""
    for name, value in said(config.enforce.max, LimitKeys.model_fields).items():
        yield enforced_by(f"max.{LimitKeys.model_fields[name].alias or name}"), {name: value}, False


def rules(config: Config, tool: str, keys: Iterable[str]) -> Iterator[tuple[str, Says]]:
    """Yield the tables by the name of a tool, the strongest last: the origin, and what it says with these keys."""
    for pattern, rule in config.rules_for(tool):
        yield table("tool", pattern), said(rule, keys)


def said(section: Section, keys: Iterable[str]) -> Says:
    """Return what a table of the configuration says with these keys."""
    return of(section, section.model_fields_set.intersection(keys))


def of(section: Section, keys: Iterable[str]) -> Says:
    """Return the values that a table of the configuration has for these keys, also those that it does not say."""
    return {key: getattr(section, key) for key in keys}


def table(kind: str, name: str) -> str:
    """Return the origin of what a table of the configuration says."""
    return f"config [{dotted((kind, name))}]"
