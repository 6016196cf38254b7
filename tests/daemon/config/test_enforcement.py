"""`[enforce]` of root's file: each key, against everything that a user, a project, a tool or an agent can say."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest

from toolcell import _owners, _paths
from toolcelld.catalog.catalog import ToolInfo
from toolcelld.catalog.discovery.scan import scan
from toolcelld.catalog.discovery.sources import ToolFile, sources_of
from toolcelld.catalog.permissions import rule_for
from toolcelld.config import load as configuration
from toolcelld.config import project_file
from toolcelld.config.edit import edit
from toolcelld.config.enforcement import PATHS
from toolcelld.config.hosts import covered
from toolcelld.config.load import Config, load
from toolcelld.config.mistakes import ConfigError
from toolcelld.config.project_file import ASKS_NOTHING, ProjectFile
from toolcelld.config.report import report
from toolcelld.config.resolution.layers import ALLOWS
from toolcelld.config.resolution.settings import KEYS, NO_LIMITS, Limits, lower
from toolcelld.config.schema import PROJECT, EnforceSection, LimitKeys
from toolcelld.errors import Refusal
from toolcelld.files.paths import Place as Found
from toolcelld.policy.decisions.trust import Trusted, Trusts
from toolcelld.policy.explain import explain, summary
from toolcelld.policy.host import HostCapabilities
from toolcelld.policy.permit import cell_of_description, permit_of
from toolcelld.policy.profiles import HostPaths
from toolcelld.policy.ruleset import Ruleset

LIMITS: Final = tuple(KEYS)
TRUSTS: Final = ("all", "confined", "ask")


@dataclass
class Place:
    """Files of root, a user and a project, and what is said elsewhere."""

    root: Path
    system: str = ""  # root's file
    user: str = ""
    other: str = ""  # a file that --config or a variable names
    project: dict[str, Any] = field(default_factory=dict[str, Any])
    declared: dict[str, Any] = field(default_factory=dict[str, Any])
    session: Limits = NO_LIMITS
    only: tuple[str, ...] = ()

    def load(self) -> Config:
        for path, text in ((self.system_file, self.system), (self.user_file, self.user)):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        paths = None
        if self.other:
            (self.root / "other.toml").write_text(self.other)
            paths = [str(self.root / "other.toml")]
        return replace(load(paths, required=paths is not None), only=self.only)

    @property
    def system_file(self) -> Path:
        return Path(_paths.SYSTEM_CONFIG)

    @property
    def user_file(self) -> Path:
        return self.root / "home" / "toolcell" / "config.toml"

    def observed(self) -> dict[str, Any]:
        """What holds for a trusted tool `t` of the project, by the keys of [enforce]."""
        config = self.load()
        work = self.root / "work"
        tools = work / ".toolcell" / "tools"
        tools.mkdir(parents=True, exist_ok=True)
        for place in (self.root / "mine", self.root / "team", tools):
            place.mkdir(exist_ok=True)
            (place / f"of_{place.name}.py").write_text("")
        asked = ProjectFile.model_validate(self.project) if self.project else ASKS_NOTHING
        file = ToolFile(f"{tools}/t.py", PROJECT, "local", "t", b"", "d", str(tools), asked=asked)
        tool = ToolInfo("t", "", b"{}", file, "t", self.declared)
        ruleset = Ruleset(config, HostPaths(HostCapabilities(), "/home/me"))
        trusted = Trusted(str(work), {(".toolcell/tools/t.py", "t"): ruleset.asked(tool)})
        ruleset = replace(ruleset, trusts=Trusts().beside(trusted))
        sources = sources_of(config, str(work))
        found: dict[str, Any] = {
            "trust": config.trust,
            "sources": {Path(each.path).name for each in scan(sources, str(work)).files},
        }
        try:
            permit = permit_of(ruleset, tool, ruleset.find_project(str(work)), str(work))
        except Refusal as refusal:
            return found | {"refused": refusal.message}
        policy, given = permit.spec.policy, lower(permit.settings.limits, self.session)
        rule = rule_for(config, tool)
        opened = {key: {*getattr(policy, key)} - {str(work), str(tools)} for key in ("readable", "writable")}
        return found | {
            "permissions": "allow" if rule is None else rule.action,
            **opened,
            "sandbox": policy.enclosure,
            "network": {"open": ("*",), "proxy": policy.hosts, "none": ()}[policy.network],
            **{f"max.{key}": getattr(given, name) for key, name in KEYS.items()},
        }


def no_fault(_: str) -> str:
    return ""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    for name in ("TOOLCELL_CONFIG", "TOOLCELL_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(_paths, "SYSTEM_CONFIG", str(tmp_path / "etc" / "toolcell" / "config.toml"))
    monkeypatch.setattr(configuration, "fault_of_roots", no_fault)  # others than root run these tests
    return Place(tmp_path)


@dataclass(frozen=True)
class Key:
    """A key of [enforce]: what root says, and what others say that is more, and less."""

    enforced: str  # the lines of root's file
    loose: Any
    tight: Any
    ways: tuple[str, ...]
    within: Callable[[Any], bool]  # whether what is observed is allowed
    tightened: Any  # what is observed then


def limit(key: str) -> Key:
    low = "32" if key == "open_files" else "2"
    return Key(
        f"[enforce.max]\n{key} = 40",
        '"off"',
        low,
        ("rule", "defaults", "decorator", "project", "environment", "option", "session"),
        lambda value: value is not None and value <= 40,
        float(low),
    )


TABLE: Final[dict[str, Key]] = {
    "trust": Key(
        '[enforce]\ntrust = "confined"',
        '"all"',
        '"ask"',
        ("file", "environment", "option"),
        lambda value: TRUSTS.index(value) >= 1,
        "ask",
    ),
    "sandbox": Key(
        '[enforce]\nsandbox = "strict"',
        '"none"',
        '"strict"',
        ("rule", "defaults", "decorator", "environment", "option", "profile"),
        lambda value: value == "strict",
        "strict",
    ),
    "network": Key(
        '[enforce]\nnetwork = ["*.example.com"]',
        "true",
        '["a.example.com"]',
        ("rule", "decorator", "project", "environment", "option", "profile"),
        lambda value: all(covered(host, ("*.example.com",)) for host in value),
        ("a.example.com",),
    ),
    "permissions": Key(
        '[enforce.permissions]\n"@exec" = "ask"',
        '"allow"',
        '"deny"',
        ("permission", "file", "environment", "option", "project"),
        lambda value: value != "allow",
        "deny",
    ),
    **{
        key: Key(
            f'[enforce]\n{key} = ["{{root}}/data"]',
            "['{root}/data', '{root}/other', '{root}/data/../other', '{root}/database']",
            "['{root}/data/less']",
            ("file", "environment", "option"),
            lambda value: all(path.endswith("/data") for path in value),
            "/data/less",
        )
        for key in PATHS
    },
    "sources": Key(
        '[enforce]\nsources = ["project", "team"]\n[source.team]\ndirectory = "{root}/team"',
        "[source.mine]\ndirectory = '{root}/mine'\n[source.team]\ndirectory = '{root}/mine'",
        "[source.team]\nsandbox = 'strict'",
        ("file", "environment", "option", "named"),
        lambda value: not {"of_mine.py", "of_mine.json"} & value,
        {"of_team.py", "of_tools.py"},
    ),
    **{f"max.{key}": limit(key) for key in LIMITS},
}


def say(place: Place, monkeypatch: pytest.MonkeyPatch, name: str, way: str, value: Any) -> None:
    """Say a value in one of the ways."""
    key = name.removeprefix("max.")
    whole = (
        value.format(root=place.root)
        if name == "sources"
        else f"trust = {value}"
        if name == "trust"
        else f"[profile.mine]\n{key} = {value.format(root=place.root)}\n[defaults]\nsandbox = 'mine'\n"
        if name in PATHS
        else f"[permissions]\n'*' = {value}\nt = {value}\n'project/*' = {value}\n'@exec' = {value}\n"
        if name == "permissions"
        else f"[tool.t]\n{key} = {value}\n[max]\n{key if name != key else 'timeout'} = 3600\n"
    )
    plain: Any = {"true": True}.get(value, value.strip('"') if isinstance(value, str) else value)
    if isinstance(plain, str) and plain.startswith("["):
        plain = ["a.example.com"]
    if isinstance(plain, str) and plain.isdigit():
        plain = int(plain)
    match way:
        case "file":
            place.user = whole
        case "rule":
            place.user = f'[tool."*"]\n{key} = {value}\n[tool.t]\n{key} = {value}\n'
        case "defaults":
            place.user = (
                f"[defaults]\n{key} = {value}\n[max]\n{'timeout' if name == 'sandbox' else key} = 'off'\n"
            )
        case "profile":
            says = f"{'base' if name == 'sandbox' else key} = {value}".replace('"none"', '"baseline"')
            place.user = f"[profile.mine]\n{says}\n[tool.t]\nsandbox = 'mine'\n"
        case "permission":  # and what moves a tool into another tier
            place.user = f"{whole}[tool.t]\nsandbox = 'none'\ndestructive = false\n"
        case "decorator":
            place.declared = {key: plain if plain != "none" else "baseline"}
        case "project":
            if name == "permissions":
                place.project = {} if plain == "allow" else {"permissions": {"*": plain}}
            else:
                place.project = {"limits": {key: plain}} if name != key else {key: plain}
        case "session":
            values: dict[str, Any] = {KEYS[key]: None if plain == "off" else plain}
            place.session = Limits(**values)
        case "environment":
            other = place.root / "named.toml"
            other.write_text(whole)
            monkeypatch.setenv("TOOLCELL_CONFIG", str(other))
            (place.root / "plugins").mkdir()
            (place.root / "plugins" / "of_mine.json").write_text("{}")
            monkeypatch.setenv("TOOLCELL_PLUGINS", str(place.root / "plugins"))
        case "option":
            place.other = whole
        case _:
            place.only = (str(place.root / "mine" / "of_mine.py"),)


CASES: Final = [(name, way) for name, key in TABLE.items() for way in key.ways]


def test_the_table_has_every_key_that_can_be_enforced() -> None:
    keys = {*EnforceSection.model_fields} - {"max"}
    assert set(TABLE) == keys | {f"max.{info.alias or name}" for name, info in LimitKeys.model_fields.items()}
    assert {*KEYS.values()} <= ALLOWS.keys()


@pytest.mark.parametrize(("name", "way"), CASES)
def test_nothing_loosens_what_root_enforces(
    place: Place, monkeypatch: pytest.MonkeyPatch, name: str, way: str
) -> None:
    key = TABLE[name]
    place.system = key.enforced.format(root=place.root)
    say(place, monkeypatch, name, way, key.loose)
    if name == "sources" and way == "named":
        place.system = place.system.replace('"project", ', "")
    found = place.observed()
    if name in found:
        assert key.within(found[name]), found
    else:  # what a tool needs and does not get is refused, and names who decides
        assert (name, f"[enforce] network in {_paths.SYSTEM_CONFIG}" in found["refused"]) == ("network", True)


@pytest.mark.parametrize(
    ("name", "way"), [case for case in CASES if case[1] not in ("named", "profile") or case[0] == "network"]
)
def test_everybody_may_say_less_than_root_allows(
    place: Place, monkeypatch: pytest.MonkeyPatch, name: str, way: str
) -> None:
    if name == "sources" and way != "file":
        return  # a file in place of root's has no source of it
    key = TABLE[name]
    place.system = key.enforced.format(root=place.root)
    say(place, monkeypatch, name, way, key.tight)
    found = place.observed()
    if name in PATHS:
        assert {*found[name]} == {f"{place.root}{key.tightened}"}, found
    else:
        assert found[name] == key.tightened, found


EVERYTHING: Final = """\
[enforce]
trust = "ask"
sandbox = "strict"
network = ["*.example.com"]
sources = ["project"]
readable = ["/srv"]
[enforce.max]
timeout = "10m"
[enforce.permissions]
"@exec" = "ask"
"deploy*" = "deny"
"""


@pytest.mark.parametrize(
    ("key", "value", "names"),
    [
        ("trust", "all", "trust"),
        ("defaults.sandbox", "none", "sandbox"),
        ("tool.t.sandbox", "baseline", "sandbox"),
        ("profile.mine.base", "baseline", "sandbox"),
        ("tool.t.network", "true", "network"),
        ("source.project.network", '["evil.example.org"]', "network"),
        ("tool.t.timeout", "11m", "max.timeout"),
        ("max.timeout", "off", "max.timeout"),
        ("profile.mine.readable", '["/srv/x", "/home"]', "readable"),
        ("profile.mine.writable", '["/srvx"]', "readable"),
        ("permissions.deploy-all", "ask", "permissions.deploy*"),
        ('permissions."@exec"', "allow", "permissions.@exec"),
        ("tool.t", '{ timeout = "off" }', "max.timeout"),
        ("source.mine.directory", "/home/me/tools", "sources"),
        ("daemon.packs", '["builtin"]', "sources"),
        ("hooks.mine.file", "/home/me/hook.py", "sources"),
    ],
)
def test_a_key_that_would_say_more_is_not_set(place: Place, key: str, value: str, names: str) -> None:
    place.system = EVERYTHING
    place.load()
    with pytest.raises(ConfigError) as caught:
        edit(str(place.user_file), key, value, _paths.config_paths())
    said = str(caught.value)
    assert f"is more than [enforce] {names} in {_paths.SYSTEM_CONFIG} allows" in said
    assert place.user_file.read_text() == ""


def test_a_key_within_it_is_set_beside_one_that_says_more(place: Place) -> None:
    place.system, place.user = EVERYTHING, "[tool.t]\ntimeout = '1h'\n"
    place.load()
    assert edit(str(place.user_file), "tool.u.timeout", "9m", _paths.config_paths())


def test_what_holds_is_told_beside_what_says_more(place: Place) -> None:
    place.system = EVERYTHING
    place.user = "trust = 'all'\n[tool.t]\ntimeout = '1h'\nnetwork = true\n[source.mine]\ndirectory = '/'\n"
    place.load()
    found = report()
    values = {it["key"]: it for it in found["values"]}
    at = f"in {_paths.SYSTEM_CONFIG}"
    assert values["tool.t.timeout"]["held"] == f"[enforce] max.timeout {at}:8"
    assert values["tool.t.network"]["held"] == f"[enforce] network {at}:4"
    assert (values["trust"]["value"], values["trust"]["held"]) == ('"ask"', f"[enforce] trust {at}:2")
    assert (values["max.timeout"]["value"], values["max.timeout"]["held"]) == (
        '"10m"',
        f"[enforce] max.timeout {at}:8",
    )
    assert values["defaults.timeout"]["held"] == ""
    assert "source.mine.directory" not in values
    assert (values["enforce.sandbox"]["origin"], values["enforce.sandbox"]["line"]) == (
        _paths.SYSTEM_CONFIG,
        3,
    )
    assert values["enforce.max.timeout"]["value"] == '"10m"'
    notes = {(it["key"], it["line"]): it["text"] for it in found["notes"]}
    assert {("trust", 1), ("tool.t.timeout", 3), ("tool.t.network", 4), ("source.mine.directory", 6)} == {
        *notes
    }
    assert all(f"{at} allows, which holds" in text for text in notes.values())


def test_a_file_in_place_of_the_users_does_not_hide_who_holds_it(place: Place) -> None:
    place.system, place.other = EVERYTHING, "[tool.t]\ntimeout = 'off'\n"
    place.load()
    found = report([str(place.root / "other.toml")])
    (held,) = (it["held"] for it in found["values"] if it["key"] == "tool.t.timeout")
    assert held == f"[enforce] max.timeout in {_paths.SYSTEM_CONFIG}:8"


def test_explain_names_root_as_the_reason(place: Place) -> None:
    place.system, place.user = EVERYTHING, "[tool.t]\nsandbox = 'none'\nnetwork = true\ntimeout = 'off'\n"
    config = place.load()
    tools = place.root / "work" / ".toolcell" / "tools"
    tools.mkdir(parents=True)
    tool = ToolInfo(
        "t", "", b"{}", ToolFile(f"{tools}/t.py", "user", "global", "t", b"", "d", str(tools)), "t", {}
    )
    ruleset = Ruleset(config, HostPaths(HostCapabilities(), "/home/me"))
    permit = permit_of(ruleset, tool, ruleset.find_project(str(place.root)), str(place.root))
    said = {it.kind: it.rule for it in summary(permit)}
    at = f"in {_paths.SYSTEM_CONFIG}"
    assert said["sandbox"] == f'sandbox = "strict", [enforce] sandbox {at}'
    assert said["network"] == f"[enforce] network {at}"
    assert permit.settings.origin("timeout") == f"[enforce] max.timeout {at}"
    assert permit.settings.origin("sandbox") == f"[enforce] sandbox {at}"
    host = explain(permit, "evil.example.org", {})
    assert (host.allowed, host.remedy) == (
        False,
        f"The administrator of this machine does not allow the network to evil.example.org: [enforce] network {at}.",
    )
    assert "config set" not in host.remedy
    described = cell_of_description(ruleset, tool.file)
    assert described.policy.enclosure == "strict"


@pytest.mark.parametrize("key", ["readable", "writable"])
def test_what_a_link_leads_to_is_not_opened_with_what_root_allows(place: Place, key: str) -> None:
    """A cell opens such a place without following links, so that no tool makes one there that leads elsewhere."""
    allowed = str(place.root / "data")
    place.system = f"[enforce]\n{key} = ['{allowed}']\n"
    place.user = f"[profile.mine]\n{key} = ['{allowed}/x']\n[defaults]\nsandbox = 'mine'\n"
    config = place.load()
    tools = place.root / "tools"
    tool = ToolInfo(
        "t", "", b"{}", ToolFile(f"{tools}/t.py", "user", "global", "t", b"", "d", str(tools)), "t", {}
    )
    ruleset = Ruleset(config, HostPaths(HostCapabilities(), "/home/me"))
    policy = permit_of(ruleset, tool, ruleset.find_project(str(place.root)), str(place.root)).spec.policy
    assert f"{allowed}/x" in getattr(policy, key)
    assert Found(f"{allowed}/x", 0, 0) in policy.found


def test_explain_names_root_for_a_path_that_no_profile_may_open(place: Place) -> None:
    place.system = "[enforce]\nreadable = ['/srv']\n"
    config = place.load()
    tools = place.root / "tools"
    tool = ToolInfo(
        "t", "", b"{}", ToolFile(f"{tools}/t.py", "user", "global", "t", b"", "d", str(tools)), "t", {}
    )
    ruleset = Ruleset(config, HostPaths(HostCapabilities(), "/home/me"))
    permit = permit_of(ruleset, tool, ruleset.find_project(str(place.root)), str(place.root))
    remedy = explain(permit, "/home/else/x", {}).remedy
    says = f"does not allow profiles to open /home/else/x: [enforce] readable in {_paths.SYSTEM_CONFIG}."
    assert remedy == f"The administrator of this machine {says}"
    assert "[profile.mine]" in explain(permit, "/srv/x", {}).remedy


@pytest.mark.parametrize(
    ("root", "user", "project", "counts"),
    [
        ("ask", "allow", "", "[enforce.permissions]"),
        ("ask", "ask", "", "[enforce.permissions]"),
        ("ask", "deny", "", "[permissions]"),
        ("allow", "ask", "", "[permissions]"),
        ("allow", "", "deny", "[permissions]"),
        ("deny", "", "ask", "[enforce.permissions]"),
    ],
)
def test_of_the_rules_of_all_the_strictest_counts(
    place: Place, root: str, user: str, project: str, counts: str
) -> None:
    place.system = f"[enforce.permissions]\n'*' = '{root}'\n"
    place.user = f"[permissions]\nt = '{user}'\n" if user else ""
    asked = ProjectFile.model_validate({"permissions": {"t": project}}) if project else ASKS_NOTHING
    file = ToolFile("/p/t.py", PROJECT, "local", "t", b"", "d", "/p", asked=asked)
    rule = rule_for(place.load(), ToolInfo("t", "", b"{}", file, "t", {}))
    assert str(rule).startswith(counts), rule


def test_a_tier_of_roots_rules_needs_a_sandbox_that_enforces_it(place: Place) -> None:
    place.user, place.declared = "[defaults]\nsandbox = 'none'\n", {"programs": False}
    place.system = "[enforce.permissions]\n'deploy*' = 'deny'\n"
    assert place.observed()["sandbox"] == "none"
    place.system = "[enforce.permissions]\n'@exec' = 'deny'\n"
    assert place.observed()["sandbox"] != "none"
    found = [each for each in load().held if each.path == ("defaults", "sandbox")]
    assert [each.by for each in found] == ["permissions"]


def test_describing_a_file_has_no_more_than_its_calls_may(place: Place) -> None:
    place.system, place.user = "[enforce.max]\nmemory = '64MiB'\n", "[defaults]\nmemory = 'off'\n"
    config = place.load()
    file = ToolFile(f"{place.root}/t.py", "user", "global", "t", b"", "d", str(place.root))
    spec = cell_of_description(Ruleset(config, HostPaths(HostCapabilities(), "/home/me")), file)
    assert spec.limits.memory_bytes == 64 * 2**20


@pytest.mark.parametrize("network", ["false", "['a.example.com']"])
def test_a_network_that_is_withheld_needs_a_sandbox_and_accepts_nothing(place: Place, network: str) -> None:
    place.system = f"[enforce]\nnetwork = {network}\n"
    place.user = "[profile.mine]\nnetwork = true\nlisten = true\n[defaults]\nsandbox = 'none'\n[tool.t]\nsandbox = 'mine'\n"
    found = place.observed()
    assert (found["sandbox"], set(found["network"]) <= {"a.example.com"}) == ("strict", True)
    place.user = "[defaults]\nsandbox = 'none'\n"
    assert "refused" in (found := place.observed()) or found["sandbox"] != "none"


def test_hooks_come_from_where_tools_may(place: Place) -> None:
    hook = place.root / "hook.py"
    hook.write_text("")
    place.user = f"[hooks.mine]\nfile = '{hook}'\n"
    assert [*place.load().hooks] == ["mine"]
    place.system = "[enforce]\nsources = ['user']\n"
    assert [*place.load().hooks] == ["mine"]
    place.system = "[enforce]\nsources = ['project']\n"
    assert [*place.load().hooks] == []


@pytest.mark.parametrize("key", ["enforce", "enforce.max"])
def test_only_roots_file_enforces(place: Place, key: str) -> None:
    place.user = f"[{key}]\ntimeout = 3\n" if key.endswith("max") else f"[{key}]\ntrust = 'ask'\n"
    with pytest.raises(ConfigError) as caught:
        place.load()
    says = f"enforce: belongs in {_paths.SYSTEM_CONFIG}, which root writes"
    assert f"{place.user_file}:1: {says}" in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        project_file.parse("/p/.toolcell/config.toml", place.user.encode())
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[enforce]\nsandbx = 'strict'", "enforce.sandbx: unknown key"),
        ("[enforce]\nsandbox = 'mine'", "enforce.sandbox"),
        ("[enforce]\nreadable = ['x']", "enforce.readable"),
        ("[enforce]\nwritable = 3", "enforce.writable"),
        ("[enforce]\npermissions = 3", "enforce.permissions: 3 should be a table"),
        ("[enforce.permissions]\n'*' = 'never'", "enforce.permissions"),
        ("[enforce.permissions]\n'a b' = 'ask'", "fits no tool"),
        ("[enforce]\nsources = ['team']", "enforce.sources"),
        ("[enforce.max]\ntimout = 3", 'enforce.max.timout: unknown key; did you mean "timeout"'),
        ("[enforce.max]\ntimeout = 'x'", "enforce.max.timeout"),
        ("[enforce]\nmax = 3", "enforce.max"),
        ("[daemon]\nworkrs = 3", "daemon.workrs"),
    ],
)
def test_a_mistake_in_roots_file_is_one_whatever_other_files_are_read(
    place: Place, text: str, says: str
) -> None:
    for other in ("", "[daemon]\nworkers = 3\n"):
        place.system, place.other = text, other
        with pytest.raises(ConfigError) as caught:
            place.load()
        assert str(caught.value).startswith(f"{_paths.SYSTEM_CONFIG}:")
        assert says in str(caught.value)


root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root has files that are root's alone")


@pytest.mark.parametrize("other", ["", "[daemon]\nworkers = 3\n"])
@pytest.mark.parametrize("at", ["config.toml", "", "no file"])
@pytest.mark.parametrize("fault", ["mode", "group", "owner"])
@root_only
def test_no_configuration_is_loaded_while_others_could_write_roots_file(
    place: Place, monkeypatch: pytest.MonkeyPatch, other: str, at: str, fault: str
) -> None:
    monkeypatch.setattr(configuration, "fault_of_roots", _owners.fault_of_roots)
    place.system, place.other = EVERYTHING, other
    place.load()
    hurt = place.system_file if at == "config.toml" else place.system_file.parent
    if at == "no file":
        place.system_file.unlink()
    if fault == "owner":
        os.chown(hurt, 65534, 65534)
    else:
        os.chown(hurt, 0, 0 if fault == "mode" else 4242)
        hurt.chmod(0o777 if fault == "mode" else 0o775)
    with pytest.raises(ConfigError) as caught:
        load([str(place.root / "other.toml")] if other else None)
    assert f"{hurt} {'belongs' if fault == 'owner' else 'can be written'}" in str(caught.value)
    assert f"chown root {hurt.parent if at == 'config.toml' else hurt}" in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root's own files are in order")
def test_a_file_of_this_user_in_the_place_of_roots_is_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.load()
    monkeypatch.setattr(configuration, "fault_of_roots", _owners.fault_of_roots)
    with pytest.raises(ConfigError, match="belongs to the user"):
        load()


@root_only
def test_a_link_of_roots_leads_to_what_is_roots_too(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.load()
    monkeypatch.setattr(configuration, "fault_of_roots", _owners.fault_of_roots)
    elsewhere = place.root / "store"
    elsewhere.mkdir()
    place.system_file.rename(elsewhere / "config.toml")
    place.system_file.symlink_to(elsewhere / "config.toml")
    assert load().files
    os.chown(elsewhere, 65534, 65534)
    with pytest.raises(ConfigError, match="store belongs to the user"):
        load()


def test_without_roots_file_nothing_is_enforced(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration, "fault_of_roots", _owners.fault_of_roots)
    assert load([]).enforce == EnforceSection.default()
