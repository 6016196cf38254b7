"""Who decides a limit: [tool.…], the file, [defaults]; [max] over the file, and a call only lowers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell import client
from toolcell._authoring.options import OPTIONS
from toolcell._units import OPEN_FILES_MIN
from toolcell_proto.v1 import toolcell_pb2 as pb
from toolcelld.config.load import Config
from toolcelld.config.resolution.declaration import DeclarationError, Preset
from toolcelld.config.resolution.settings import KEYS, Limits, lower, resolve
from toolcelld.config.schema import DefaultsSection, MaxSection, SourceSection, ToolSection
from toolcelld.rpc.messages.decoding import decode_limits

VALUES = st.integers(min_value=OPEN_FILES_MIN, max_value=10_000) | st.none()
LIMITS = st.builds(Limits, **dict.fromkeys(KEYS.values(), VALUES))
SAID = st.dictionaries(
    st.sampled_from(sorted(KEYS)), VALUES.map(lambda value: "off" if value is None else value)
)


def no_more(value: float | None, ceiling: float | None) -> bool:
    return ceiling is None or (value is not None and value <= ceiling)


def test_configuration_contract_file_and_client_have_the_same_limits() -> None:
    assert {field.name for field in pb.Limits.DESCRIPTOR.fields} == {*asdict(Limits())} == {*KEYS.values()}
    assert {*client.Limits.__annotations__} == {*KEYS}
    assert {*client.Limits.__annotations__} <= {*OPTIONS}
    sixties = dict.fromkeys(KEYS.values(), 60)
    assert decode_limits(pb.Limits(**sixties), "call.limits") == Limits(**sixties)


@given(LIMITS, LIMITS)
def test_a_call_never_raises_a_limit(limits: Limits, by: Limits) -> None:
    lowered = asdict(lower(limits, by))
    assert all(no_more(lowered[name], value) for name, value in asdict(limits).items())
    assert all(no_more(lowered[name], value) for name, value in asdict(by).items())
    assert lower(limits, Limits()) == limits


@given(SAID, SAID, SAID)
def test_what_a_file_asks_for_is_held_under_max(
    most: dict[str, Any], asked: dict[str, Any], defaults: dict[str, Any]
) -> None:
    config = Config(max=MaxSection.model_validate(most), defaults=DefaultsSection.model_validate(defaults))
    limits = resolve(config, "lint", asked, "project").limits
    for key in asked:
        assert no_more(getattr(limits, KEYS[key]), getattr(config.max, KEYS[key]))


@given(SAID, SAID, SAID)
def test_the_tools_own_table_decides_then_the_file_then_the_defaults(
    rule: dict[str, Any], asked: dict[str, Any], defaults: dict[str, Any]
) -> None:
    section = ToolSection.model_validate(rule)
    config = Config(
        max=MaxSection.model_validate(dict.fromkeys(KEYS, "off")),
        defaults=DefaultsSection.model_validate(defaults),
        rules=(("lint", section),),
    )
    settings = resolve(config, "lint", asked, "project")
    for key, name in KEYS.items():
        said = rule.get(key, asked.get(key, defaults.get(key)))
        expected = getattr(DefaultsSection(), name) if said is None else None if said == "off" else said
        assert getattr(settings.limits, name) == expected
        origin = "default"
        for place, table in (("config [tool.lint]", rule), ("file", asked), ("config [defaults]", defaults)):
            if key in table:
                origin = place
                break
        assert settings.origin(key) == origin


def test_a_file_that_asks_for_no_limit_gets_what_max_allows() -> None:
    settings = resolve(Config(), "lint", {"timeout": "off", "memory": "1TiB"}, "project")
    assert (settings.limits.timeout_seconds, settings.limits.memory_bytes) == (3600, 4 * 2**30)
    assert settings.origin("timeout") == settings.origin("memory") == "config [max]"


def test_the_later_pattern_wins_and_an_exact_name_beats_both() -> None:
    rules = {"git_log": {"queue": 1}, "git_*": {"queue": 2, "cpu": 2}, "*": {"cpu": 3, "idle": 3}}
    config = Config(rules=tuple((name, ToolSection.model_validate(said)) for name, said in rules.items()))
    settings = resolve(config, "git_log", {}, "project")
    limits = settings.limits
    assert (limits.queue_seconds, limits.cpu_seconds, limits.idle_seconds) == (1, 3, 3)
    assert [settings.origin(key) for key in ("queue", "cpu")] == [
        "config [tool.git_log]",
        'config [tool."*"]',
    ]
    assert resolve(config, "git_diff", {}, "project").limits.queue_seconds == 2


def test_grants_of_variables_add_up() -> None:
    config = Config(
        sources={"team": SourceSection(directory="/team", env=("TEAM_URL", "PATH"))},
        rules=(("lint", ToolSection(env=("RUFF_*",))),),
    )
    settings = resolve(config, "lint", {}, "team")
    assert settings.access.env == ("PATH", "HOME", "LANG", "LC_*", "TZ", "TEAM_URL", "RUFF_*")
    assert settings.origin("env") == "default, config [source.team], config [tool.lint]"
    assert resolve(config, "other", {}, "project").access.env == Config().defaults.env


def test_a_tool_can_be_switched_off() -> None:
    config = Config(rules=(("lint", ToolSection(enabled=False)),))
    assert not resolve(config, "lint", {}, "project").enabled
    assert resolve(config, "words", {}, "project").enabled


def test_a_setting_is_shown_as_it_would_be_written() -> None:
    declared = {"timeout": 0.5, "memory": "512MiB", "output_bytes": 100, "read_only": True, "output": "tail"}
    shown = {line.key: line.value for line in resolve(Config(), "lint", declared, "project").lines}
    assert shown["timeout"] == "500ms"
    assert (shown["memory"], shown["output_bytes"], shown["cpu"]) == ("512MiB", "100", "off")
    assert (shown["read_only"], shown["output"]) == ("true", "tail")
    assert shown["env"] == '["PATH", "HOME", "LANG", "LC_*", "TZ"]'


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"timeout": "soon"}, 'timeout="soon" is no duration; write seconds'),
        ({"timeout": float("nan")}, "timeout=nan is no duration"),
        ({"memory": -1}, "memory=-1 is no size"),
        ({"output": "top"}, "output=\"top\" should be 'head', 'tail' or 'middle'"),
        ({"timeot": 1}, "timeot is no option of a tool"),
        ({"network": 3}, "network=3 should be a list of host names, true for all"),
        ({"read_only": "yes"}, 'read_only="yes" should be a valid boolean'),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(declared: dict[str, object], message: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        resolve(Config(), "lint", declared, "project")
    assert str(caught.value).startswith(message)


def test_declarations_that_later_versions_grant_are_kept() -> None:
    resolve(
        Config(),
        "lint",
        {"network": ["api.github.com"], "secrets": ["TOKEN"], "name": "lint", "description": ""},
        "x",
    )


def test_a_preset_of_a_flavour_replaces_our_defaults_and_nothing_else() -> None:
    preset = Preset("opencode", {"output_bytes": 51_200, "notice": "opencode"})

    def found(config: Config, **declared: object) -> tuple[int | None, str, str]:
        settings = resolve(config, "lint", declared, "project", preset=preset)
        return settings.limits.output_bytes, settings.notice, settings.origin("output_bytes")

    assert found(Config()) == (51_200, "opencode", "flavour opencode")
    assert found(Config(), output_bytes=7) == (7, "opencode", "file")
    assert found(Config(rules=(("lint", ToolSection(output_bytes=9, notice="plain")),)))[:2] == (9, "plain")
    defaults = DefaultsSection.model_validate({"output_bytes": 8, "notice": "plain"})
    assert found(Config(defaults=defaults)) == (8, "plain", "config [defaults]")
    most = MaxSection.model_validate({"output_bytes": 10})
    assert found(Config(max=most))[0] == 10
