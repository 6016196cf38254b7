"""The configuration that a project ships: what it asks for, and its mistakes with file, key and remedy."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcelld.catalog.discovery.scan import scan
from toolcelld.catalog.discovery.sources import ToolFile, sources_of
from toolcelld.catalog.problem import Problem
from toolcelld.config.load import Config
from toolcelld.config.mistakes import ConfigError
from toolcelld.config.project_file import ProjectFile, parse, read
from toolcelld.config.schema import SourceSection

WHOLE = b"""
python = ".venv/bin/python"
programs = ["node_modules/.bin"]
requires = ["httpx < 1"]
env = ["DATABASE_URL"]
network = ["API.example.com"]
secrets = ["TOKEN"]
[limits]
timeout = "5m"
[permissions]
"b*" = "deny"
"a*" = "ask"
"""


def test_everything_that_a_project_may_ask_for_is_read() -> None:
    found = parse("f", WHOLE)
    assert (found.python, found.programs, found.requires) == (
        ".venv/bin/python",
        ("node_modules/.bin",),
        ("httpx<1",),
    )
    assert (found.env, found.network, found.secrets) == (("DATABASE_URL",), ("api.example.com",), ("TOKEN",))
    assert found.limits.timeout_seconds == 300
    assert found.permissions == (("b*", "deny"), ("a*", "ask"))
    assert parse("f", b"") == ProjectFile()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('pyton = "x"', 'f: pyton: unknown key; did you mean "python"?'),
        ('trust = "all"', "f: trust: unknown key; known here: python,"),
        ('python = "/usr/bin/python3"', "should be a path in the project"),
        ('python = "../../bin/python"', "without .."),
        ('programs = ["/usr/bin"]', "should be a path in the project"),
        ('programs = ["a:b"]', "should be a path in the project"),
        ('requires = ["x @ file:///x"]', "has an address"),
        ('requires = "httpx"', "should be a list of packages"),
        ('[limits]\ntimeot = "1m"', 'f: limits.timeot: unknown key; did you mean "timeout"?'),
        ('[limits]\ntimeout = "soon"', "limits.timeout"),
        ("limits = 1", "f: limits: 1"),
        ('[permissions]\n"*" = "allow"', "a project allows nothing"),
        ('[permissions]\n"*" = 1', "a project allows nothing"),
        ('[permissions]\n"a b" = "deny"', "fits no tool"),
        ("permissions = 1", "f: permissions: 1 should be a table"),
        (
            "[permissions]\n" + "".join(f'a{number} = "deny"\n' for number in range(257)),
            "more than 256 rules",
        ),
        ('secrets = ["a b"]', "should be a list of names of secrets"),
        ("x = [", "is not TOML"),
        (f"x = {'[' * 30_000}", "nested too deeply"),
        (f"x = {'9' * 5000}", "a number of too many digits"),
        (f"x{'.x' * 30_000} = 1", "more than 64 dots in line 1"),
    ],
)
def test_a_mistake_names_the_file_the_key_and_the_remedy(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse("f", text.encode())
    assert message in str(caught.value)


def test_a_link_a_pipe_and_a_large_file_are_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("password = 'hunter2'")
    place = tmp_path / "p" / ".toolcell"
    place.mkdir(parents=True)
    assert read(str(tmp_path / "p")) is None
    (place / "config.toml").symlink_to(secret)
    with pytest.raises(ConfigError, match="is a link") as caught:
        read(str(tmp_path / "p"))
    assert "hunter2" not in str(caught.value)
    (place / "config.toml").unlink()
    (place / "config.toml").write_bytes(b"#" * 100_000)
    with pytest.raises(ConfigError, match="more than 64 KiB"):
        read(str(tmp_path / "p"))
    (place / "config.toml").unlink()
    (place / "config.toml").mkdir()
    with pytest.raises(ConfigError, match="not a file"):
        read(str(tmp_path / "p"))


@given(st.binary(max_size=200))
def test_any_content_is_read_or_is_a_mistake(raw: bytes) -> None:
    with contextlib.suppress(ConfigError):
        assert isinstance(parse("f", raw), ProjectFile)


def project(tmp_path: Path, text: str) -> Path:
    tools = tmp_path / ".toolcell" / "tools"
    tools.mkdir(parents=True)
    (tools / "a.py").write_text("")
    (tmp_path / ".toolcell" / "config.toml").write_text(text)
    return tmp_path


def files_of(config: Config, directory: Path) -> list[ToolFile | Problem]:
    return [
        one
        for one in scan(sources_of(config, str(directory)), str(directory)).found
        if str(directory) in one.path
    ]


def test_the_files_of_a_project_have_what_it_asks_for(tmp_path: Path) -> None:
    directory = project(tmp_path, WHOLE.decode())
    (file,) = files_of(Config(), directory)
    assert isinstance(file, ToolFile)
    assert (file.python, file.programs) == (
        f"{directory}/.venv/bin/python",
        (f"{directory}/node_modules/.bin",),
    )
    assert file.requires == ("httpx<1",)
    (directory / ".toolcell" / "config.toml").write_text("")
    (other,) = files_of(Config(), directory)
    assert isinstance(other, ToolFile)
    assert other.digest != file.digest


def test_the_configuration_of_the_user_is_stronger(tmp_path: Path) -> None:
    directory = project(tmp_path, WHOLE.decode())
    own = Config(sources={"project": SourceSection(python="/opt/python/bin/python3", programs=("/opt/bin",))})
    (file,) = files_of(own, directory)
    assert isinstance(file, ToolFile)
    assert (file.python, file.programs) == ("/opt/python/bin/python3", ("/opt/bin",))


def test_a_mistake_is_a_problem_and_the_tools_stay(tmp_path: Path) -> None:
    problem, file = files_of(Config(), project(tmp_path, 'pyton = "x"'))
    assert isinstance(problem, Problem)
    assert isinstance(file, ToolFile)
    assert "pyton: unknown key" in problem.message
