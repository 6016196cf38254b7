"""What a tool is permitted: from configuration, source, trust and host, without a cell."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcelld.catalog.catalog import ToolInfo
from toolcelld.catalog.sources import ToolFile
from toolcelld.config.grants import Grant
from toolcelld.config.load import Config
from toolcelld.config.schema import DefaultsSection, ProfileSection, SecretSection, SourceSection, ToolSection
from toolcelld.errors import Refusal, RefusalReason
from toolcelld.policy import profiles
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.policy.host import HostCapabilities
from toolcelld.policy.profiles import HostPaths
from toolcelld.policy.project import Project
from toolcelld.policy.ruleset import Ruleset
from toolcelld.policy.trust import Trusted, Trusts
from toolcelld.sandbox.paths import Place
from toolcelld.sandbox.policy import OPEN

HOME = "/home/me"
WORK = "/home/me/work"
ENVIRONMENT = dict.fromkeys(["PATH", "LANG", "AWS_KEY", "TEAM_URL", "OTHER", "CACHE"], "value")
TOKEN = {"TOKEN": SecretSection(env="TOKEN")}
PROJECT = Project(
    WORK,
    WORK,
    (Place(WORK, 1, 2), Place(f"{WORK}/below", 1, 3)),
    (Place(f"{WORK}/.git", 1, 4),),
    (f"{WORK}/.git",),
)
ALL = HostCapabilities()
BARE = HostCapabilities(strict="unprivileged user namespaces are forbidden")
NOTHING_AT_ALL = HostCapabilities(baseline="no Landlock", strict="no Landlock")


@pytest.fixture(autouse=True)
def _whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "AUTO", ("strict", "baseline"))


def tool_file(source: str = "user", **values: Any) -> ToolFile:
    place = f"{WORK}/.toolcell/tools" if source == "project" else f"{HOME}/.config/toolcell/tools"
    return ToolFile(f"{place}/t.py", source, "local", "t", b"", values.pop("digest", "d"), place, **values)


def config(**values: Any) -> Config:
    rules = (("t", ToolSection.model_validate(values.pop("tool"))),) if "tool" in values else ()
    sources = {name: SourceSection.model_validate(said) for name, said in values.pop("source", {}).items()}
    defaults = DefaultsSection.model_validate(values.pop("defaults", {}))
    return Config(rules=rules, sources=sources, defaults=defaults, secrets=TOKEN, **values)


def permitted(
    config: Config, declared: dict[str, Any] | None = None, *, source: str = "user", host: HostCapabilities = ALL,
    trusts: Trusts | None = None, file: ToolFile | None = None,
) -> CellSpec:  # fmt: skip
    around = HostPaths(host, HOME, ("/state", "/run/toolcell"), ENVIRONMENT)
    tool = ToolInfo("t", "", b"{}", file or tool_file(source), "t", declared or {})
    project = PROJECT
    return Ruleset(config, around, trusts or Trusts()).permit(tool, project, f"{WORK}/below").spec


def secrets(spec: CellSpec) -> tuple[str, ...]:
    return tuple(name for name, _ in spec.secrets.places)


def variables(spec: CellSpec) -> set[str]:
    return {name for name, _ in spec.environment}


def trusted(
    *, network: bool | tuple[str, ...] = False, secrets: tuple[str, ...] = (), pins: tuple[str, ...] = ()
) -> Trusts:
    return Trusts().beside(Trusted(WORK, Grant(network, secrets), frozenset(pins)))


def refusal(*arguments: Any, **values: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        permitted(*arguments, **values)
    return caught.value


def test_a_tool_may_write_its_project_and_no_more() -> None:
    policy = permitted(config()).policy
    assert (policy.enclosure, policy.network, policy.execute) == ("strict", "none", True)
    assert policy.writable == (WORK, f"{WORK}/below")
    assert f"{HOME}/.config/toolcell/tools" in policy.readable
    assert policy.protected == (f"{WORK}/.git",)
    assert {PROJECT.held[0], PROJECT.protected[0]} <= set(policy.found)
    assert {HOME, "/state", "/run/toolcell"} <= set(policy.hidden)


def test_a_tool_that_only_reads_has_nothing_to_write() -> None:
    policy = permitted(config(), {"read_only": True}).policy
    assert policy.writable == ()
    assert WORK in policy.readable


def test_auto_is_the_best_that_there_is_and_never_nothing() -> None:
    assert permitted(config(), host=BARE).policy.enclosure == "baseline"
    assert refusal(config(), host=NOTHING_AT_ALL).reason is RefusalReason.NO_SANDBOX


def test_a_sandbox_that_the_host_cannot_give_is_refused_with_what_is_missing() -> None:
    message = refusal(config(tool={"sandbox": "strict"}), host=BARE).message
    assert "strict, which this host cannot give: unprivileged user namespaces are forbidden" in message
    assert '[tool.t] sandbox = "baseline"' in message


def test_the_sandbox_is_of_the_tool_then_its_source_then_the_defaults() -> None:
    source = {"user": {"sandbox": "baseline"}}
    assert permitted(config(source=source)).policy.enclosure == "baseline"
    assert permitted(config(source=source, tool={"sandbox": "none"})).policy == OPEN
    assert permitted(config(defaults={"sandbox": "none"})).policy == OPEN


@given(st.sampled_from(["auto", "strict", "baseline", "none"]), st.sampled_from(["baseline", "strict"]))
def test_a_file_can_only_ask_for_more(configured: str, asked: str) -> None:
    profiles.AUTO = ("strict", "baseline")  # type: ignore[misc]  # as the fixture does, which hypothesis runs once
    strength = {"none": 0, "baseline": 1, "strict": 2}
    without = permitted(config(tool={"sandbox": configured})).policy.enclosure
    with_it = permitted(config(tool={"sandbox": configured}), {"sandbox": asked}).policy.enclosure
    assert strength[with_it] == max(strength[without], strength[asked])


def test_a_profile_says_what_is_readable_writable_and_whether_programs_start() -> None:
    profile = ProfileSection.model_validate(
        {"base": "baseline", "readable": ["/data"], "writable": ["/cache"], "programs": False, "env": ["CACHE"],
         "network": True, "secrets": ["TOKEN"]}
    )  # fmt: skip
    found = permitted(config(profiles={"mine": profile}, tool={"sandbox": "mine"}))
    policy = found.policy
    assert (policy.enclosure, policy.network, policy.execute) == ("baseline", "open", False)
    assert "/data" in policy.readable
    assert "/cache" in policy.writable
    assert "CACHE" in variables(found)
    assert secrets(found) == ("TOKEN",)


# Needs and grants


@pytest.mark.parametrize(
    ("declared", "line"),
    [
        ({"network": True}, "network = true"),
        ({"network": ["api.github.com"]}, 'network = ["api.github.com"]'),
        ({"secrets": ["TOKEN"]}, 'secrets = ["TOKEN"]'),
    ],
)
def test_an_unmet_need_is_refused_with_the_line_to_add(declared: dict[str, Any], line: str) -> None:
    found = refusal(config(), declared)
    assert found.reason is RefusalReason.NEEDS_GRANT
    assert f"[tool.t]\n    {line}" in found.message


def test_a_line_that_is_added_meets_the_need() -> None:
    found = permitted(
        config(tool={"network": ["*.github.com"], "secrets": ["TOKEN"]}), {"network": ["api.github.com"]}
    )
    assert (found.policy.network, secrets(found)) == ("proxy", ("TOKEN",))
    assert set(found.policy.hosts) == {"*.github.com", "api.github.com"} or found.policy.hosts == (
        "*.github.com",
    )


def test_a_source_allows_its_files_what_they_ask_for_and_no_more() -> None:
    allowed = config(source={"user": {"network": ["a.com"], "secrets": ["TOKEN"]}})
    assert permitted(allowed).policy.network == "none"
    found = permitted(allowed, {"network": ["a.com"], "secrets": ["TOKEN"]})
    assert (found.policy.hosts, secrets(found)) == (("a.com",), ("TOKEN",))
    assert refusal(allowed, {"network": ["a.com", "b.com"]}).reason is RefusalReason.NEEDS_GRANT


def test_the_tools_own_table_has_the_last_word_on_its_network() -> None:
    source = {"user": {"network": True}}
    assert refusal(config(source=source, tool={"network": False}), {"network": True})
    found = permitted(config(source=source, tool={"network": ["a.com"]}), {"network": ["a.com"]})
    assert found.policy.hosts == ("a.com",)


def test_some_hosts_can_be_held_in_strict_alone() -> None:
    found = refusal(config(tool={"network": ["a.com"]}), host=BARE)
    assert found.reason is RefusalReason.NO_SANDBOX
    assert permitted(config(tool={"network": True}), host=BARE).policy.network == "open"


def test_a_secret_without_a_place_is_refused() -> None:
    found = refusal(config(source={"user": {"secrets": ["OTHER"]}}), {"secrets": ["OTHER"]})
    assert "nothing says where it comes from" in found.message


# Trust


def test_an_untrusted_project_runs_in_the_smallest_cell() -> None:
    generous = config(
        source={"project": {"env": ["TEAM_URL"], "network": True, "secrets": ["TOKEN"]}},
        tool={"network": True, "secrets": ["TOKEN"], "env": ["OTHER"]},
        defaults={"env": ["PATH", "LANG", "AWS_KEY"]},
    )
    found = permitted(generous, source="project")
    assert found.policy.network == "none"
    assert secrets(found) == ()
    assert variables(found) == {"PATH", "LANG"}
    assert found.policy.writable == (WORK, f"{WORK}/below")


def test_an_untrusted_project_names_neither_its_interpreter_nor_its_programs() -> None:
    file = tool_file("project", python=f"{WORK}/.venv/bin/python", programs=(f"{WORK}/bin",))
    found = permitted(config(), source="project", file=file)
    assert (found.file.python, found.file.programs) == (None, ())
    found = permitted(config(), source="project", file=file, trusts=trusted())
    assert found.file.python == f"{WORK}/.venv/bin/python"
    assert {f"{WORK}/.venv", f"{WORK}/bin"} <= set(found.policy.readable)


def test_what_an_untrusted_tool_needs_is_refused_with_the_command_that_grants_it() -> None:
    found = refusal(config(), {"network": True}, source="project")
    assert found.reason is RefusalReason.NEEDS_GRANT
    assert f"toolcell trust {WORK}" in found.message


def test_trust_grants_what_was_asked_for_and_no_more() -> None:
    asked = {"network": ["a.com"], "secrets": ["TOKEN"]}
    found = permitted(
        config(), asked, source="project", trusts=trusted(network=("a.com",), secrets=("TOKEN",))
    )
    assert (found.policy.hosts, secrets(found)) == (("a.com",), ("TOKEN",))
    assert refusal(config(), {"network": True}, source="project", trusts=trusted(network=("a.com",)))


def test_the_source_is_a_ceiling_over_trust() -> None:
    ceiling = config(source={"project": {"network": False}})
    assert refusal(ceiling, {"network": True}, source="project", trusts=trusted(network=True))


def test_a_pin_is_on_the_code_of_then() -> None:
    pinned = trusted(network=True, pins=("d",))
    assert permitted(config(), {"network": True}, source="project", trusts=pinned).policy.network == "open"
    changed = tool_file("project", digest="other")
    assert refusal(config(), {"network": True}, source="project", trusts=pinned, file=changed)


def test_ask_refuses_the_untrusted_and_all_trusts_everybody() -> None:
    assert refusal(config(trust="ask"), source="project").reason is RefusalReason.UNTRUSTED
    assert permitted(config(trust="ask"), source="project", trusts=trusted())
    assert permitted(config(trust="ask"))
    found = permitted(config(trust="all"), {"network": True, "secrets": ["TOKEN"]}, source="project")
    assert (found.policy.network, secrets(found)) == ("open", ("TOKEN",))


# Describing


@pytest.mark.parametrize("source", ["project", "user"])
def test_describing_neither_writes_nor_speaks(source: str) -> None:
    generous = config(tool={"network": True, "secrets": ["TOKEN"]}, trust="all")
    ruleset = Ruleset(generous, HostPaths(ALL, HOME))
    found = ruleset.describing(tool_file(source))
    assert (found.policy.enclosure, found.policy.network, found.policy.writable) == ("strict", "none", ())
    assert secrets(found) == ("TOKEN",)


def test_describing_an_untrusted_file_shows_it_no_secret() -> None:
    ruleset = Ruleset(config(tool={"secrets": ["TOKEN"]}), HostPaths(ALL, HOME))
    assert secrets(ruleset.describing(tool_file("project"))) == ()


# The arithmetic

HOSTS = st.booleans() | st.lists(st.sampled_from(["a.com", "b.com", "*.c.com", "x.c.com"]), min_size=1).map(
    tuple
)
GRANTS = st.builds(Grant, HOSTS, st.lists(st.sampled_from(["A", "B"]), unique=True).map(tuple))


@given(GRANTS, GRANTS)
def test_what_is_within_and_what_is_lacking_are_all_that_was_asked_for(asked: Grant, most: Grant) -> None:
    within = asked.within(most)
    assert not within.lacking(most)
    assert bool(asked.lacking(most)) == bool(asked.lacking(within))
    assert not asked.lacking(asked.beside(most))
    assert not most.lacking(asked.beside(most))
