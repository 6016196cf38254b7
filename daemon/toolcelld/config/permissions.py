"""Permission rules: which tools run, which are asked about first, and which are not offered at all.

    [permissions]
    "*" = "allow"
    "@exec" = "ask"          # a tier: @read, @write or @exec
    "deploy*" = "deny"       # names
    "project/*" = "ask"      # the names of one source

The last rule that matches counts, so a later file overrides an earlier one. A tool that no rule matches is allowed.
A project's own file has the same table without "allow", and root's file may have one that no user loosens,
[enforce.permissions]. Of the rules that these three tables come to the strictest one counts.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar, cast, get_args

Action = Literal["allow", "ask", "deny"]
Stricter = Literal["ask", "deny"]
Tier = Literal["read", "write", "exec"]
Rules: TypeAlias = tuple[tuple[str, Action], ...]

RULES_MAX: Final = 256
"""Of one file. Every tool of a directory is held against every rule when its files change."""
_PATTERN: Final = re.compile(
    r"@(?:read|write|exec)|(?:[A-Za-z0-9_\-*?\[\]!]{1,128}/)?[A-Za-z0-9_\-*?\[\]!]{1,128}"
)
NO_PATTERN: Final = "fits no tool; write a name or a pattern (deploy*), one of a source (project/deploy*), or @read, @write, @exec"


class Rule(NamedTuple):
    """A rule that matches a tool."""

    pattern: str
    action: Action
    file: str
    """Where it stands, for people."""
    enforced: bool = False
    """Whether it is root's, and no user can loosen it."""

    def __str__(self) -> str:
        table = "enforce.permissions" if self.enforced else "permissions"
        return f'[{table}] "{self.pattern}" = "{self.action}" in {self.file}'


def is_pattern(text: str) -> bool:
    """Whether a text can be the key of a rule."""
    return _PATTERN.fullmatch(text) is not None


def last_match(rules: Rules, name: str, source: str, tier: Tier) -> tuple[str, Action] | None:
    """Return the last rule that matches a tool, or None.

    Args:
        rules: The rules, in order.
        name: The tool's name.
        source: The name of its source.
        tier: What it may do.
    """
    for pattern, action in reversed(rules):
        if pattern.startswith("@"):
            matches = pattern[1:] == tier
        else:
            matches = fnmatch.fnmatchcase(f"{source}/{name}" if "/" in pattern else name, pattern)
        if matches:
            return pattern, action
    return None


def stricter_rules(value: object) -> tuple[tuple[str, Stricter], ...]:
    """Read the table of a project's file. Raises `ValueError` that says what to write."""
    return _rules(value, get_args(Stricter), 'is neither "ask" nor "deny"; a project allows nothing')


def any_rules(value: object) -> Rules:
    """Read a table that may also allow. Raises `ValueError` that says what to write."""
    return _rules(value, get_args(Action), 'is none of "allow", "ask" and "deny"')


def has_tiers(rules: Rules) -> bool:
    """Whether a rule is about what tools may do, which holds for what a cell enforces alone."""
    return any(pattern.startswith("@") for pattern, _ in rules)


ActionT = TypeVar("ActionT", bound=Action)


def _rules(value: object, actions: Sequence[ActionT], problem: str) -> tuple[tuple[str, ActionT], ...]:
    if not isinstance(value, dict):
        raise ValueError(  # noqa: TRY004  # what pydantic reports as a mistake
            'should be a table; write its rules below it, such as "deploy*" = "ask"'
        )
    rules = cast("dict[str, object]", value)
    if len(rules) > RULES_MAX:
        raise ValueError(f"has more than {RULES_MAX} rules; use patterns")
    for pattern, action in rules.items():
        if not is_pattern(pattern):
            raise ValueError(f"has a rule {pattern[:60]!r} that {NO_PATTERN}")
        if action not in actions:
            raise ValueError(f"has a rule {pattern[:60]!r} that {problem}")
    return tuple(cast("dict[str, ActionT]", rules).items())


def stricter(action: Action, other: Action) -> bool:
    """Whether an action is stricter than another one."""
    return get_args(Action).index(action) > get_args(Action).index(other)


def strictest(rules: Iterable[Rule]) -> Rule | None:
    """Return the rule with the strictest action, the first of equals; None without any."""
    return max(rules, key=lambda rule: get_args(Action).index(rule.action), default=None)
