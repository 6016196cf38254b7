"""Properties of the pure function that makes a permit, over projects and rules of any shape.

`tests/daemon/sandbox/test_permits_in_cells.py` holds real cells against what was granted.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcell._paths import is_below
from toolcelld.catalog.catalog import ToolInfo
from toolcelld.catalog.discovery.sources import ToolFile, sources_of
from toolcelld.config.load import Config
from toolcelld.config.project_file import ProjectFile
from toolcelld.config.resolution.layers import Standing
from toolcelld.config.schema import (
    PROJECT,
    DaemonSection,
    DefaultsSection,
    HookSection,
    ProfileSection,
    SecretSection,
    SourceSection,
    ToolSection,
)
from toolcelld.errors import Refusal
from toolcelld.policy.decisions.trust import Trusted, Trusts
from toolcelld.policy.host import HostCapabilities
from toolcelld.policy.permit import Permit, permit_of
from toolcelld.policy.profiles import HostPaths
from toolcelld.policy.ruleset import Ruleset

HOME = "/home/me"
ENVIRONMENT = dict.fromkeys(["PATH", "AWS_KEY", "TEAM_URL"], "value")
SECRETS = {"TOKEN": SecretSection(env="TOKEN")}
HOST = HostCapabilities()

HOSTS = st.sampled_from([True, False, ["a.com"], ["a.com", "*.b.com"]])
NAMES = st.sampled_from([[], ["AWS_KEY"], ["AWS_KEY", "TEAM_URL"]])
LIMITS = {"memory": st.sampled_from(["64MiB", "4GiB"]), "processes": st.sampled_from([3, 900])}
ASKED = {"network": HOSTS, "secrets": st.just(["TOKEN"])}
DECLARED = st.fixed_dictionaries({}, optional={**ASKED, **LIMITS, "sandbox": st.just("strict")})
PROJECT_FILES = st.fixed_dictionaries(
    {}, optional={**ASKED, "env": NAMES, "limits": st.fixed_dictionaries({}, optional=LIMITS)}
).map(ProjectFile.model_validate)
RULES = st.fixed_dictionaries(
    {},
    optional={
        **ASKED,
        **LIMITS,
        "env": NAMES,
        "sandbox": st.sampled_from(["none", "auto", "baseline", "strict", "mine"]),
        "read_only": st.booleans(),
    },
)
MINE = {"mine": ProfileSection.model_validate({"base": "auto", "writable": ["/srv/data"], "network": True})}
TRUST = st.sampled_from(["untrusted", "trusted", "shown"])


def reach(permit: Permit) -> set[str]:
    """What a permit gives, as a set that is larger where more is given."""
    spec = permit.spec
    policy = spec.policy
    everything = {
        *(f"secret {name}" for name, _ in spec.secrets.places),
        *(f"variable {name}" for name, _ in spec.environment),
        *(f"host {host}" for host in policy.hosts),
        *(f"writable {path}" for path in policy.writable),
        *(f"readable {path}" for path in (*policy.readable, *policy.writable)),
        *(f"weaker {number}" for number in range(("strict", "baseline", "none").index(policy.enclosure))),
        *(f"network {number}" for number in range(("none", "proxy", "open").index(policy.network))),
        *(["execute"] if policy.execute else []),
    }
    for name in ("memory_bytes", "processes", "disk_bytes"):
        value = getattr(spec.limits, name)
        everything.update(f"{name} {step}" for step in range(64) if value is None or value >= 2**step)
    if policy.network == "open":
        everything.update({"host a.com", "host *.b.com", "network 1"})
    return everything


def is_within(small: set[str], large: set[str]) -> bool:
    """Whether one gives no more than another; without a sandbox every path, host and program is there."""
    if "weaker 1" in large:
        small = {
            each
            for each in small
            if each.split()[0] not in ("writable", "readable", "host", "network", "execute")
        }
    return small <= large


def decided(
    root: str,
    rule: dict[str, Any],
    declared: dict[str, Any],
    asked: ProjectFile,
    trust: str,
    source: str = PROJECT,
) -> set[str]:
    """What the tool `t` of a project is given; nothing where it is refused."""
    config = Config(
        rules=(("t", ToolSection.model_validate(rule)),),
        defaults=DefaultsSection(),
        secrets=SECRETS,
        profiles=MINE,
    )
    place = f"{root}/.toolcell/tools"
    tool = ToolInfo(
        "t",
        "",
        b"{}",
        ToolFile(f"{place}/t.py", source, "local", "t", b"", "d", place, asked=asked),
        "t",
        declared,
    )
    ruleset = Ruleset(config, HostPaths(HOST, HOME, ("/state",), ENVIRONMENT))
    if trust != "untrusted":
        shown = (
            {(".toolcell/tools/t.py", "t"): ruleset.asked(tool)}
            if trust == "shown"
            else {(".toolcell/tools/u.py", "u"): ruleset.asked(tool)}
        )
        trusts = Trusts().beside(Trusted(root, shown))
        ruleset = Ruleset(ruleset.config, ruleset.host_paths, trusts)
    try:
        return reach(permit_of(ruleset, tool, ruleset.find_project(root), root))
    except Refusal:
        return set()


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(RULES, DECLARED, PROJECT_FILES)
def test_more_trust_never_gives_less(
    rule: dict[str, Any], declared: dict[str, Any], asked: ProjectFile
) -> None:
    with tempfile.TemporaryDirectory() as root:
        os.makedirs(f"{root}/.toolcell/tools")
        given = [decided(root, rule, declared, asked, trust) for trust in ("untrusted", "trusted", "shown")]
    assert is_within(given[0], given[1])
    assert is_within(given[1], given[2])


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(RULES, DECLARED, PROJECT_FILES)
def test_no_rule_by_name_gives_a_file_anything_that_was_not_shown(
    rule: dict[str, Any], declared: dict[str, Any], asked: ProjectFile
) -> None:
    with tempfile.TemporaryDirectory() as root:
        os.makedirs(f"{root}/.toolcell/tools")
        for trust in ("untrusted", "trusted"):
            by_name = decided(root, rule, declared, asked, trust)
            assert is_within(by_name, decided(root, {}, declared, asked, trust))


ENTRIES = st.lists(
    st.tuples(
        st.sampled_from(["", "a", "a/b", "c"]),
        st.sampled_from(
            [
                ".git",
                ".git/hooks",
                ".toolcell/tools",
                ".atomic/tools",
                ".venv/bin",
                ".claude",
                "CLAUDE.md",
                "own",
                "link",
            ]
        ),
        st.sampled_from(["directory", "file", "link to a", "link to c", "link outside"]),
    ),
    max_size=8,
)


def made(root: Path, entries: list[tuple[str, str, str]]) -> None:
    """Make the entries that can be made."""
    for directory in ("a/b", "c"):
        (root / directory).mkdir(parents=True)
    for above, name, kind in entries:
        path = root / above / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            match kind:
                case "directory":
                    path.mkdir()
                case "file":
                    path.touch(exist_ok=False)
                case _:
                    path.symlink_to(
                        {"a": root / "a", "c": root / "c"}.get(kind.rsplit(" ", 1)[1], root.parent)
                    )
        except OSError:
            continue  # something else is there


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(ENTRIES, st.sampled_from(["", "a", "a/b"]), st.sampled_from(["", "a/own", "c/own"]), TRUST)
def test_nothing_that_runs_outside_of_a_cell_is_writable_inside(
    entries: list[tuple[str, str, str]], below: str, own_source: str, trust: str
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "project"
        made(root, entries)
        session = os.path.realpath(root / below)
        sources = {"own": SourceSection(directory=str(root / own_source))} if own_source else {}
        config = Config(
            sources=sources,
            defaults=DefaultsSection(),
            secrets=SECRETS,
            daemon=DaemonSection(safe_directories=()),
        )
        place = f"{session}/.toolcell/tools"
        tool = ToolInfo(
            "t", "", b"{}", ToolFile(f"{place}/t.py", PROJECT, "local", "t", b"", "d", place), "t", {}
        )
        trusts = Trusts()
        if trust != "untrusted":
            trusts = trusts.beside(
                Trusted(
                    session,
                    {(".toolcell/tools/t.py", "t"): Ruleset(config, HostPaths(HOST, HOME)).asked(tool)},
                )
            )
        ruleset = Ruleset(config, HostPaths(HOST, HOME, ("/state",), ENVIRONMENT), trusts)
        policy = permit_of(ruleset, tool, ruleset.find_project(session), session).spec.policy

        def writable(path: str) -> bool:
            """Whether a cell may write what is at a path, or exchange it."""
            over = [place for place in (*policy.writable, *policy.protected) if is_below(path, place)]
            return bool(over) and max(over, key=len) not in policy.protected

        # What is around the session's directory; a repository of its own elsewhere in the project is not looked for.
        around = [root, *(root / part for part in ("a", "a/b") if is_below(session, str(root / part)))]
        names = (".git", ".venv", ".claude", "CLAUDE.md")
        outside = [str(place / name) for place in around for name in names]
        outside += [place for one in sources_of(config, session) for place in one.directories]
        for path in outside:
            if os.path.lexists(path):
                assert not writable(path), f"{path} in {policy}"
                real = os.path.realpath(path)
                assert real in map(str, around) or not os.path.exists(real) or not writable(real), (
                    f"{path} leads to {real} in {policy}"
                )


def test_a_rule_by_name_gives_the_users_own_tool_what_it_says() -> None:
    with tempfile.TemporaryDirectory() as root:
        os.makedirs(f"{root}/.toolcell/tools")
        given = decided(root, {"env": ["AWS_KEY"]}, {}, ProjectFile(), "untrusted", source="user")
    assert "variable AWS_KEY" in given


@pytest.mark.parametrize(
    ("change", "tenant", "given"),
    [
        ({}, "alice", True),
        ({}, "bob", False),
        ({}, "eve", False),
        ({}, "", False),  # no session of a cluster
        ({"code": "c2"}, "alice", False),
        ({"code": ""}, "alice", False),
        ({"uncovered": "a link"}, "alice", False),
        ({"python": "/srv/python"}, "alice", False),
        ({"programs": ("/srv/bin",)}, "alice", False),
        ({"share": "session"}, "alice", False),
    ],
)
def test_code_that_placement_trusts_gets_what_it_asks_for_where_a_digest_covers_it(
    change: dict[str, Any], tenant: str, given: bool
) -> None:
    file = ToolFile(
        "/p/.toolcell/tools/t.py", PROJECT, "local", "t", b"", "d", "/p/.toolcell/tools", code="c"
    )
    tool = ToolInfo("t", "", b"{}", replace(file, **change), "t", {"network": True})
    codes = {"alice": frozenset({"c", ""}), "bob": frozenset({"c2"})}
    rules = Ruleset(Config(), HostPaths(HOST, HOME, ("/state",), ENVIRONMENT), codes=codes)
    consent = rules.consent(tool, tenant)
    assert (consent.standing is Standing.FULL) is given
    assert bool(rules.resolved("t", tool.declared, tool.file, consent).access.network) is given


def test_what_the_users_rules_run_or_read_is_read_only_in_a_project() -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(os.path.realpath(directory)) / "project"
        for name in ("guard.py", "token", "bin/pass", "programs/git"):
            place = root / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text("")
        config = Config(
            sources={"own": SourceSection(directory="/nowhere", programs=(str(root / "programs"),))},
            defaults=DefaultsSection(),
            secrets={
                "A": SecretSection(file=str(root / "token")),
                "B": SecretSection(command=("sh", str(root / "bin/pass"))),
            },
            hooks={"guard": HookSection(file=str(root / "guard.py"))},
        )
        found = Ruleset(config, HostPaths(HOST, HOME)).find_project(str(root))
    assert {os.path.relpath(place.path, root) for place in found.protected} == {
        "guard.py", "token", "bin/pass", "programs",
    }  # fmt: skip
