"""What a tool is permitted: from configuration, source, trust and host, without a cell."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcelld.catalog.catalog import ToolInfo
from toolcelld.catalog.discovery.sources import ToolFile
from toolcelld.config.hosts import network_entries
from toolcelld.config.load import Config
from toolcelld.config.resolution.access import Access
from toolcelld.config.schema import DefaultsSection, ProfileSection, SecretSection, SourceSection, ToolSection
from toolcelld.environments.engine import ScriptEngine
from toolcelld.errors import Refusal, RefusalReason
from toolcelld.files.paths import Place
from toolcelld.policy import profiles
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.policy.decisions.trust import Trusted, Trusts
from toolcelld.policy.host import HostCapabilities
from toolcelld.policy.permit import cell_of_description, permit_of
from toolcelld.policy.profiles import HostPaths
from toolcelld.policy.project import Project
from toolcelld.policy.ruleset import Ruleset
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
BUN = ScriptEngine("bun", "/opt/engines/bun")
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
    trusts: Trusts | None = None, file: ToolFile | None = None, project: Project = PROJECT, confined: bool = False,
) -> CellSpec:  # fmt: skip
    around = HostPaths(host, HOME, ("/state", "/run/toolcell"), ENVIRONMENT, confined=confined)
    tool = ToolInfo("t", "", b"{}", file or tool_file(source), "t", declared or {})
    return permit_of(Ruleset(config, around, trusts or Trusts()), tool, project, f"{WORK}/below").spec


def secrets(spec: CellSpec) -> tuple[str, ...]:
    return tuple(name for name, _ in spec.secrets.places)


def variables(spec: CellSpec) -> set[str]:
    return {name for name, _ in spec.environment}


def trusted(
    *,
    network: bool | tuple[str, ...] = False,
    secrets: tuple[str, ...] = (),
    env: tuple[str, ...] = (),
    sandbox: str = "",
    pins: tuple[str, ...] = (),
    **interpreter: Any,
) -> Trusts:
    shown = {
        (".toolcell/tools/t.py", "t"): Access(
            sandbox, network=network_entries(network), secrets=secrets, env=env
        )
    }
    return Trusts().beside(Trusted(WORK, shown, pins=frozenset(pins), **interpreter))


def refusal(*arguments: Any, **values: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        permitted(*arguments, **values)
    return caught.value


@pytest.mark.parametrize(
    "tool", [{"network": True}, {"sandbox": "none"}, {"network": ["a.example"], "sandbox": "none"}]
)
def test_a_confined_daemon_gives_no_tool_the_whole_network_or_no_sandbox(tool: dict[str, Any]) -> None:
    assert permitted(config(tool=tool))
    refused = refusal(config(tool=tool), confined=True)
    assert refused.reason is RefusalReason.NOT_ALLOWED
    assert "[tool.t] network" in refused.message
    assert permitted(config(tool={"network": ["a.example"]}), confined=True).policy.network == "proxy"


def test_a_tool_may_write_its_project_and_no_more() -> None:
    policy = permitted(config()).policy
    assert (policy.enclosure, policy.network, policy.execute) == ("strict", "none", True)
    assert policy.writable == (WORK, f"{WORK}/below")
    assert f"{HOME}/.config/toolcell/tools" in policy.readable
    assert policy.protected == (f"{WORK}/.git",)
    assert {PROJECT.held[0], PROJECT.protected[0]} <= set(policy.found)
    assert {HOME, "/state", "/run/toolcell"} <= set(policy.hidden)


def test_what_a_tool_writes_in_its_project_is_guarded_but_for_what_is_granted() -> None:
    project = replace(PROJECT, names=(".git", ".envrc"))
    policy = permitted(config(), project=project).policy
    assert (policy.guarded, policy.names, policy.granted) == (WORK, (".git", ".envrc"), ())
    mine = ProfileSection.model_validate({"base": "baseline", "writable": [f"{WORK}/.envrc", "/cache"]})
    granted = permitted(config(tool={"sandbox": "mine"}, profiles={"mine": mine}), project=project).policy
    assert (granted.guarded, granted.granted) == (WORK, (f"{WORK}/.envrc",))
    for without in (
        permitted(config(tool={"read_only": True}), project=project),
        permitted(config(tool={"sandbox": "none"}), project=project),
        permitted(config(), project=project, host=HostCapabilities(guard="no listener")),
    ):
        assert (without.policy.guarded, without.policy.names) == ("", ())


def test_a_tool_that_only_reads_has_nothing_to_write() -> None:
    policy = permitted(config(), {"read_only": True}).policy
    assert policy.writable == ()
    assert WORK in policy.readable


def test_a_tool_that_starts_no_programs_cannot() -> None:
    assert permitted(config(), {"programs": False}).policy.execute is False
    still = {"profiles": {"still": ProfileSection.model_validate({"programs": False})}}
    loosened = permitted(config(tool={"sandbox": "still"}, **still), {"programs": True})
    assert loosened.policy.execute is False


@pytest.mark.parametrize("directory", [HOME, "/home", "/"])
def test_a_file_in_the_home_directory_does_not_open_it(directory: str) -> None:
    file = ToolFile(f"{directory}/x.py", "user", "local", "x", b"", "d", directory)
    assert directory not in permitted(config(), file=file).policy.readable
    assert directory not in cell_of_description(Ruleset(config(), HostPaths(ALL, HOME)), file).policy.readable


def test_auto_is_the_best_that_there_is_and_never_nothing() -> None:
    assert permitted(config(), host=BARE).policy.enclosure == "baseline"
    assert refusal(config(), host=NOTHING_AT_ALL).reason is RefusalReason.NO_SANDBOX


def test_a_sandbox_that_the_host_cannot_give_is_refused_with_what_is_missing() -> None:
    message = refusal(config(tool={"sandbox": "strict"}), host=BARE).message
    assert "strict, which this host cannot give: unprivileged user namespaces are forbidden" in message
    assert message.endswith("To run it with less: toolcell config set tool.t.sandbox baseline   or none")


@pytest.mark.parametrize(("sandbox", "less"), [("auto", "none"), ("baseline", "none"), ("strict", "none")])
def test_less_is_what_the_host_can_give_and_no_more_than_was_refused(sandbox: str, less: str) -> None:
    message = refusal(config(tool={"sandbox": sandbox}), host=NOTHING_AT_ALL).message
    assert message.endswith(f"To run it with less: toolcell config set tool.t.sandbox {less}")
    nothing = replace(NOTHING_AT_ALL, none="no descriptors")
    assert "with less" not in refusal(config(tool={"sandbox": sandbox}), host=nothing).message


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


def test_the_repository_of_a_linked_worktree_is_readable_unless_the_users_profile_has_it_writable() -> None:
    repository = Place("/srv/main/.git", 1, 5)
    linked = replace(PROJECT, repository=(repository,))
    for read_only in (False, True):
        policy = permitted(config(tool={"read_only": read_only}), project=linked).policy
        assert repository.path in policy.readable
        assert repository in policy.found
        assert repository.path not in policy.writable
    for path in ("/srv", repository.path):
        mine = ProfileSection.model_validate({"base": "auto", "writable": [path]})
        policy = permitted(config(tool={"sandbox": "mine"}, profiles={"mine": mine}), project=linked).policy
        assert path in policy.writable
        assert repository.path not in policy.readable, "it would be mounted over what is writable"
    assert permitted(config(tool={"sandbox": "none"}), project=linked).policy == OPEN


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
    ("declared", "setting"),
    [
        ({"network": True}, "network true"),
        ({"network": ["api.github.com"]}, """network '["api.github.com"]'"""),
        ({"secrets": ["TOKEN"]}, """secrets '["TOKEN"]'"""),
    ],
)
def test_an_unmet_need_is_refused_with_the_command_that_grants_it(
    declared: dict[str, Any], setting: str
) -> None:
    found = refusal(config(), declared)
    assert found.reason is RefusalReason.NEEDS_GRANT
    assert f"toolcell config set tool.t.{setting}" in found.message


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


def script(source: str, directory: str) -> ToolFile:
    return ToolFile(f"{directory}/t.ts", source, "local", "t", b"", "d", directory, engine=BUN)


def test_a_script_has_its_engine_in_an_untrusted_project_too_and_nothing_that_steers_it() -> None:
    found = permitted(config(), source="project", file=script("project", f"{WORK}/.opencode/tools"))
    assert found.interpreter is not None
    assert (found.interpreter.program, found.interpreter.engine) == (BUN.program, "bun")
    assert BUN.program in found.policy.readable
    assert os.path.dirname(BUN.program) not in found.policy.readable
    assert not {"VIRTUAL_ENV"} & variables(found)


def test_a_file_that_is_described_reads_its_project_and_never_the_home_directory() -> None:
    ruleset = Ruleset(config(), HostPaths(ALL, HOME))
    found = cell_of_description(ruleset, script("project", f"{WORK}/.opencode/tools")).policy
    assert WORK in found.readable
    assert found.writable == ()
    at_home = cell_of_description(ruleset, script("project", f"{HOME}/.opencode/tools")).policy
    assert HOME not in at_home.readable
    python = cell_of_description(ruleset, tool_file("project"))
    assert WORK in python.policy.readable
    assert python.policy.writable == ()
    assert python.directory == WORK


def test_an_untrusted_project_names_neither_its_interpreter_nor_its_programs() -> None:
    file = tool_file("project", python=sys.executable, programs=(f"{WORK}/bin",))
    found = permitted(config(), source="project", file=file)
    assert (found.file.python, found.file.programs, found.interpreter) == (None, (), None)
    shown = trusted(python=sys.executable, programs=(f"{WORK}/bin",))
    found = permitted(config(), source="project", file=file, trusts=shown)
    assert found.interpreter is not None
    assert (found.file.python, found.interpreter.executable) == (sys.executable, sys.executable)
    assert {sys.prefix, f"{WORK}/bin"} <= set(found.policy.readable)


def test_an_interpreter_that_is_none_is_refused_with_the_way_to_make_it_anew() -> None:
    file = tool_file("project", python=f"{WORK}/.venv/bin/python")
    shown = trusted(python=f"{WORK}/.venv/bin/python")
    found = refusal(config(), source="project", file=file, trusts=shown)
    assert found.reason is RefusalReason.BROKEN_TOOL
    assert f"python3 -m venv --clear {WORK}/.venv" in found.message


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


# Authority: a rule by name is written for the user's own tool

LOOSENING: list[dict[str, Any]] = [
    {"sandbox": "none"},
    {"sandbox": "baseline"},
    {"sandbox": "mine"},
    {"network": True},
    {"network": ["a.com"]},
    {"secrets": ["TOKEN"]},
    {"env": ["AWS_KEY"]},
    {"memory": "3GiB"},
    {"open_files": "off"},
    {"processes": 500},
    {"read_only": False},
]
MINE = ProfileSection.model_validate(
    {
        "base": "baseline",
        "readable": ["/data"],
        "writable": ["/cache"],
        "env": ["CACHE"],
        "secrets": ["TOKEN"],
    }
)


@pytest.mark.parametrize("rule", LOOSENING, ids=str)
def test_a_rule_by_name_gives_an_untrusted_file_nothing(rule: dict[str, Any]) -> None:
    profiles_of = {"profiles": {"mine": MINE}}
    declared = {"read_only": True} if "read_only" in rule else {}
    without = permitted(config(**profiles_of), declared, source="project")
    assert permitted(config(tool=rule, **profiles_of), declared, source="project") == without
    assert permitted(config(tool=rule, **profiles_of), declared) != permitted(config(**profiles_of), declared)
    ruleset = Ruleset(config(tool=rule, **profiles_of), HostPaths(ALL, HOME, (), ENVIRONMENT))
    bare = Ruleset(config(**profiles_of), HostPaths(ALL, HOME, (), ENVIRONMENT))
    assert cell_of_description(ruleset, tool_file("project")) == cell_of_description(
        bare, tool_file("project")
    )


@pytest.mark.parametrize("rule", LOOSENING[:7], ids=str)
def test_a_rule_by_name_gives_a_trusted_projects_tool_what_was_shown(rule: dict[str, Any]) -> None:
    rules = config(tool=rule, profiles={"mine": MINE})
    without = permitted(config(), source="project", trusts=trusted())
    assert permitted(rules, source="project", trusts=trusted()) == without, "the rule was not shown"
    tool = ToolInfo("t", "", b"{}", tool_file("project"), "t", {})
    asked = Ruleset(rules, HostPaths(ALL, HOME)).asked(tool)
    assert asked
    shown = Trusts().beside(Trusted(WORK, {(".toolcell/tools/t.py", "t"): asked}))
    granted, own = permitted(rules, source="project", trusts=shown), permitted(rules)
    assert (granted.policy.enclosure, granted.policy.hosts) == (own.policy.enclosure, own.policy.hosts)
    assert (variables(granted), secrets(granted)) == (variables(own), secrets(own))


@pytest.mark.parametrize(
    ("rule", "declared"),
    [
        ({"sandbox": "strict"}, {}),
        ({"memory": "64MiB"}, {"memory": "1GiB"}),
        ({"processes": 3}, {}),
        ({"read_only": True}, {}),
        ({"sandbox": "still"}, {}),
    ],
    ids=str,
)
def test_a_rule_by_name_that_tightens_holds_for_all_tools(
    rule: dict[str, Any], declared: dict[str, Any]
) -> None:
    still = {"profiles": {"still": ProfileSection.model_validate({"programs": False})}}
    base = {"defaults": {"sandbox": "baseline"}} if rule.get("sandbox") == "strict" else {}
    for source, trusts in (("user", None), ("project", None), ("project", trusted())):
        tight = permitted(config(tool=rule, **still, **base), declared, source=source, trusts=trusts)
        loose = permitted(config(**still, **base), declared, source=source, trusts=trusts)
        assert tight != loose
        if "memory" in rule:
            assert tight.limits.memory_bytes == 64 * 2**20
        if rule.get("sandbox") == "strict":
            assert tight.policy.enclosure == "strict"
        if rule.get("sandbox") == "still":
            assert not tight.policy.execute


def test_an_untrusted_file_declares_no_more_than_the_defaults() -> None:
    declared = {"memory": "2GiB", "processes": 900, "disk": "8GiB"}
    plain = permitted(config(), source="project").limits
    assert permitted(config(), declared, source="project").limits == plain
    assert permitted(config(), declared, source="project", trusts=trusted()).limits.memory_bytes == 2 * 2**30
    assert permitted(config(), {"memory": "64MiB"}, source="project").limits.memory_bytes == 64 * 2**20


def test_a_tool_that_is_new_in_a_trusted_project_was_not_shown() -> None:
    rules = config(tool={"secrets": ["TOKEN"], "sandbox": "none"})
    other = Trusts().beside(
        Trusted(WORK, {(".toolcell/tools/t.py", "other"): Access(network=("*",), secrets=("TOKEN",))})
    )
    found = permitted(rules, source="project", trusts=other)
    assert (secrets(found), found.policy.enclosure) == ((), "strict")
    assert refusal(rules, {"network": True}, source="project", trusts=other)


def test_another_interpreter_was_not_shown() -> None:
    file = tool_file("project", python=f"{WORK}/.venv/bin/python")
    found = permitted(config(), source="project", file=file, trusts=trusted(python="/usr/bin/python3"))
    assert found.file.python is None


@given(
    st.sampled_from(LOOSENING),
    st.fixed_dictionaries({}, optional={"network": st.just(["a.com"]), "secrets": st.just(["TOKEN"])}),
)
def test_more_trust_never_gives_less(rule: dict[str, Any], declared: dict[str, Any]) -> None:
    profiles.AUTO = ("strict", "baseline")  # type: ignore[misc]  # as the fixture does, which hypothesis runs once
    rules = config(tool=rule, profiles={"mine": MINE})
    tool = ToolInfo("t", "", b"{}", tool_file("project"), "t", declared)
    asked = Ruleset(rules, HostPaths(ALL, HOME)).asked(tool)
    shown = Trusts().beside(Trusted(WORK, {(".toolcell/tools/t.py", "t"): asked}))

    def reach(trusts: Trusts) -> set[str]:
        try:
            found = permitted(rules, declared, source="project", trusts=trusts)
        except Refusal:
            return set()
        kind = {"strict": 0, "baseline": 1, "none": 2}[found.policy.enclosure]
        network = {"none": 0, "proxy": 1, "open": 2}[found.policy.network]
        every = {
            *secrets(found),
            *variables(found),
            *(f"weaker {n}" for n in range(kind)),
            *(f"network {n}" for n in range(network)),
        }
        return every | set(found.policy.hosts)

    assert reach(Trusts()) <= reach(shown)


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
    found = cell_of_description(ruleset, tool_file(source))
    assert (found.policy.enclosure, found.policy.network, found.policy.writable) == ("strict", "none", ())
    assert secrets(found) == ("TOKEN",)


def test_describing_an_untrusted_file_shows_it_no_secret() -> None:
    ruleset = Ruleset(config(tool={"secrets": ["TOKEN"]}), HostPaths(ALL, HOME))
    assert secrets(cell_of_description(ruleset, tool_file("project"))) == ()


def test_in_a_source_of_the_user_only_its_own_tools_write() -> None:
    project = replace(PROJECT, sources=(WORK,))
    team = ToolFile(f"{WORK}/t.py", "team", "local", "t", b"", "d", WORK)
    asked = config(source={"team": {"directory": WORK}})
    assert permitted(asked, file=team, source="team", project=project).policy.writable
    for source in ("project", "user"):
        policy = permitted(asked, source=source, project=project).policy
        assert (policy.writable, WORK in policy.readable) == ((), True)
