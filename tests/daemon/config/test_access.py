"""The fold of layers: what a layer can do to what a tool may do, in every order and with every content."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcelld.config.hosts import WHOLE, network_entries, network_value
from toolcelld.config.load import Config
from toolcelld.config.project_file import ProjectFile
from toolcelld.config.resolution.access import NOTHING, Access, decide
from toolcelld.config.resolution.layers import Layer, Says, Standing
from toolcelld.config.schema import Declared, DefaultsSection, ProfileSection, SourceSection, ToolSection

FIELDS = [name for name in asdict(NOTHING) if name != "origins"]
STRENGTH = ["none", "baseline", "auto", "strict"]
HOSTS = ["a.com", "*.c.com", "x.c.com", "192.0.2.7"]


def some(*entries: str) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(entries), unique=True).map(tuple)


NETWORK = some(*HOSTS) | st.just((WHOLE,))
SAYS: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {},
    optional={
        "profile": st.sampled_from([*STRENGTH, "mine"]),
        "enclosure": st.sampled_from(STRENGTH),
        "network": NETWORK,
        "secrets": some("A", "B"),
        "env": some("PATH", "LC_*"),
        "readable": some("/a", "/b"),
        "writable": some("/a", "/b"),
        "programs": st.booleans(),
        "listen": st.booleans(),
    },
)


def named(layers: list[Any]) -> list[Layer]:
    return [(f"layer {number}", says, loosens) for number, (says, loosens) in enumerate(layers)]


LAYERS = st.lists(st.tuples(SAYS, st.booleans()), max_size=6).map(named)
TIGHT = st.lists(st.tuples(SAYS, st.just(False)), max_size=4).map(named)


def plain(access: Access) -> dict[str, Any]:
    """The values, lists without their order."""
    return {name: set(listed(access, name)) if is_list(name) else getattr(access, name) for name in FIELDS}


def is_list(name: str) -> bool:
    return isinstance(getattr(NOTHING, name), tuple)


def listed(access: Access, name: str) -> list[Any]:
    """The entries of a field, or its one value."""
    return [*getattr(access, name)] if is_list(name) else [getattr(access, name)]


def is_within(small: Access, large: Access) -> bool:
    return (
        not Access(network=small.network, secrets=small.secrets, env=small.env).lacking(large)
        and {*small.readable} <= {*large.readable}
        and {*small.writable} <= {*large.writable}
        and STRENGTH.index(small.enclosure) >= STRENGTH.index(large.enclosure)
        and small.programs <= large.programs
        and small.listen <= large.listen
        and small.profile == large.profile
    )


@pytest.mark.slow
@settings(max_examples=200)
@given(LAYERS, SAYS, LAYERS)
def test_a_layer_that_may_not_loosen_widens_nothing_wherever_it_is(
    before: list[Layer], says: Says, after: list[Layer]
) -> None:
    assert is_within(Access.of([*before, ("tight", says, False), *after]), Access.of([*before, *after]))


@given(LAYERS, st.lists(st.sampled_from(["a.com", "a.com:80", "*.com:443", "[::1]:80", "::1"])).map(tuple))
def test_a_network_that_was_held_has_no_port_that_was_not_there(
    before: list[Layer], network: tuple[str, ...]
) -> None:
    before = [*before, ("ports", {"network": ("a.com:80", "*.com", "::1")}, True)]
    held = Access.of([*before, ("tight", {"network": network}, False)])
    assert is_within(held, Access.of(before))
    assert is_within(Access(network=held.network), Access(network=network))


@given(LAYERS, SAYS)
def test_a_layer_that_may_loosen_gives_what_it_says(before: list[Layer], says: Says) -> None:
    access = Access.of([*before, ("loose", says, True)])
    assert is_within(Access(**{**asdict(access), **says}), access)


@given(LAYERS, TIGHT)
def test_the_order_of_layers_that_may_not_loosen_does_not_matter(
    before: list[Layer], tight: list[Layer]
) -> None:
    assert plain(Access.of([*before, *tight])) == plain(Access.of([*before, *reversed(tight), *tight]))


@given(LAYERS, LAYERS)
def test_layers_may_be_replaced_by_what_they_come_to(before: list[Layer], after: list[Layer]) -> None:
    access = Access.of(before)
    says = {name: getattr(access, name) for name in FIELDS}
    assert plain(Access.of([("before", says, True), *after])) == plain(Access.of([*before, *after]))


@given(LAYERS)
def test_the_origin_of_an_entry_is_a_layer_that_has_it(layers: list[Layer]) -> None:
    access = Access.of(layers)
    says = {"default": {name: getattr(NOTHING, name) for name in FIELDS}}
    says |= {origin: {**said} for origin, said, _ in layers}
    for name in FIELDS:
        entries = listed(access, name)
        for entry in entries:
            said = says[access.origins[name][entry]][name]
            assert entry in said if is_list(name) else entry == said
        assert entries or name in says[access.origin(name)]


def test_nothing_is_allowed_before_a_layer_loosens() -> None:
    access = Access.of([])
    assert access == NOTHING
    assert (access.enclosure, access.network, access.programs) == ("strict", (), False)


@given(NETWORK)
def test_a_network_is_written_as_it_is_read(network: tuple[str, ...]) -> None:
    assert network_entries(network_value(network)) == network
    assert network_value(()) is False


# The layers of a tool


def decided(
    rule: dict[str, Any],
    declared: dict[str, Any] | None = None,
    standing: Standing = Standing.FULL,
    most: Says | None = None,
    asked: dict[str, Any] | None = None,
    **values: Any,
) -> Access:
    config = Config(
        rules=(
            ("*", ToolSection.model_validate(values.pop("pattern", {}))),
            ("t", ToolSection.model_validate(rule)),
        ),
        profiles={
            "mine": ProfileSection.model_validate({"base": "baseline", "network": True, "env": ["MINE"]})
        },
        sources={"project": SourceSection.model_validate(values.pop("source", {}))},
        defaults=DefaultsSection.model_validate(values.pop("defaults", {})),
    )
    file = Declared.model_validate(declared or {})
    return decide(
        config, "t", file, "project", ProjectFile.model_validate(asked or {}), standing, most or {}
    )[0]


def test_every_entry_names_the_table_that_gives_it() -> None:
    access = decided(
        {"env": ["RULE"], "secrets": ["A"]},
        {"network": ["a.com"]},
        pattern={"env": ["PATTERN"]},
        asked={"env": ["ASKED"], "network": ["b.com"]},
        source={"sandbox": "mine"},
    )  # fmt: skip
    assert [access.origin("env", name) for name in ("ASKED", "PATH", "MINE", "PATTERN", "RULE")] == [
        "asked for by the project", "default", "config [profile.mine]", 'config [tool."*"]', "config [tool.t]",
    ]  # fmt: skip
    assert (access.sandbox, access.origin("enclosure")) == ("mine", "config [source.project]")
    assert access.origin("network", WHOLE) == "config [profile.mine]"
    assert access.origin("secrets") == "config [tool.t]"
    assert decided({}, {"network": ["a.com"]}).origin("network") == "asked for by the file"
    served = decided({}, {"secrets": ["A"]}, source={"mcp": ["server"], "secrets": ["A"]})
    assert served.origin("secrets") == "config [source.project]", "an MCP server has no file that asks"
    assert decided({"network": False}, {"network": ["a.com"]}).origin("network") == "config [tool.t]"
    stronger = decided({}, {"sandbox": "strict", "programs": False})
    assert (stronger.sandbox, stronger.origin("enclosure"), stronger.origin("programs")) == (
        "strict",
        "file",
        "file",
    )


def test_a_rule_by_name_that_can_only_tighten_also_holds_what_a_profile_gives() -> None:
    for standing in Standing:
        access = decided({"network": ["a.com"]}, standing=standing, source={"sandbox": "mine"})
        assert access.network == (() if standing is Standing.UNTRUSTED else ("a.com",))
        stronger = decided({"sandbox": "auto"}, standing=standing, defaults={"sandbox": "baseline"})
        assert (stronger.enclosure, stronger.origin("enclosure")) == ("auto", "config [tool.t]")


def test_a_profile_that_only_a_rule_by_name_names_gives_a_projects_tool_nothing() -> None:
    access = decided({"sandbox": "mine"}, standing=Standing.CHANGED)
    assert (access.sandbox, access.network, "MINE" in access.env) == ("auto", (), False)


def test_a_tool_that_asks_for_more_keeps_the_variables_that_were_shown() -> None:
    most = {"network": (), "secrets": (), "env": ("RULE", "ASKED")}
    asked = {"env": ["ASKED", "NEW"]}
    access = decided({"env": ["RULE", "OTHER"]}, standing=Standing.CHANGED, most=most, asked=asked)
    assert {*access.env} - {*DefaultsSection.default().env} == {"RULE", "ASKED"}


def test_the_project_of_an_untrusted_tool_gives_it_no_variable() -> None:
    access = decided(
        {"env": ["LANG"]},
        standing=Standing.UNTRUSTED,
        most={"env": ()},
        asked={"env": ["TZ"]},
        defaults={"env": ["PATH", "AWS_KEY"]},
    )
    assert access.env == ("PATH",)
