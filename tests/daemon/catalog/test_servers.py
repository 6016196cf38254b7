"""MCP servers of the configuration: what their commands come to, and the tool file that an entry is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolcelld.catalog.discovery.scan import scan
from toolcelld.catalog.discovery.servers import CommandError, Launch, launch_of, with_version
from toolcelld.catalog.discovery.sources import ToolFile, sources_of
from toolcelld.config.enforcement import hold
from toolcelld.config.load import Config, load
from toolcelld.config.mistakes import ConfigError
from toolcelld.config.schema import EnforceSection, SourceSection


@pytest.mark.parametrize(
    ("command", "words", "packages"),
    [
        ("uvx mcp-server-git==1.2 --repository .", "mcp-server-git --repository .", "mcp-server-git==1.2"),
        ("uvx mcp-server-git@1.2", "mcp-server-git", "mcp-server-git==1.2"),
        ("uvx mcp-server-git@latest", "mcp-server-git", "mcp-server-git"),
        ("uvx mcp-server-git[all]>=1 a", "mcp-server-git a", "mcp-server-git[all]>=1"),
        ("uvx --from a-package==2 run-it -v", "run-it -v", "a-package==2"),
        ("uvx --quiet --with mcp<2 --from=a run", "run", "a mcp<2"),
        ("/usr/bin/uvx a", "a", "a"),
        ("uv tool run a --b", "a --b", "a"),
        ("pipx run --spec a==1 b", "b", "a==1"),
        ("pipx run a", "a", "a"),
        ("env A=1 B=x=y uvx a c", "env A=1 B=x=y a c", "a"),
        ("python -m server", "python -m server", ""),
        ("/opt/server --x", "/opt/server --x", ""),
        ("uv run server.py", "uv run server.py", ""),
        ("pnpm start", "pnpm start", ""),
    ],
)
def test_a_command_of_python_comes_to_its_program_and_its_packages(
    command: str, words: str, packages: str
) -> None:
    launch = launch_of(tuple(command.split()))
    assert (launch.words, sorted(launch.packages), launch.scripts) == (
        tuple(words.split()),
        packages.split(),
        (),
    )


@pytest.mark.parametrize(
    ("command", "launch"),
    [
        ("npx -y @a/b@1.2 --x", Launch(("", "--x"), (), ("@a/b@1.2",))),
        ("npx b", Launch(("",), (), ("b@latest",))),
        ("npx --yes --package=@a/b@1 -p c run y", Launch(("run", "y"), (), ("@a/b@1", "c@latest"), 0, "run")),
        ("npx b -- --x", Launch(("", "--x"), (), ("b@latest",))),
        ("bunx b@^1", Launch(("",), (), ("b@^1",))),
        ("pnpm dlx b", Launch(("",), (), ("b@latest",))),
        ("yarn dlx b", Launch(("",), (), ("b@latest",))),
        ("npm exec b", Launch(("",), (), ("b@latest",))),
        ("bun x b", Launch(("",), (), ("b@latest",))),
        ("env A=1 npx b c", Launch(("env", "A=1", "", "c"), (), ("b@latest",), 2)),
    ],
)
def test_a_command_of_npm_comes_to_its_packages(command: str, launch: Launch) -> None:
    assert launch_of(tuple(command.split())) == launch


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("uvx", "names no package"),
        ("uvx --from", "has --from without a package"),
        ("uvx --python 3.12 a", "has --python of uvx, which is not known here"),
        ("uvx --index-url https://evil.example a", "has --index-url of uvx, which is not known here"),
        ("uvx --from git+https://evil.example/a a", "has a fault in its packages"),
        ("uvx ./a", "which is no package"),
        ("uvx --with a@https://evil.example/a b", "has a fault in its packages"),
        ("npx", "names no package"),
        ("npx ./a", "write a package of npm"),
        ("npx github:a/b", "write a package of npm"),
        ("npx a@https://evil.example/a.tgz", "write a package of npm"),
        ("npx a@file:../b", "write a package of npm"),
        ("npx -c echo", "has -c of npx, which is not known here"),
        ("npx --registry=https://evil.example a", "has --registry of npx"),
        ("docker run x", "gives every client the whole machine"),
        ("env A=1 podman run x", "gives every client the whole machine"),
        ("env A=1", "sets variables and names no program"),
        ("env -i a", "has -i of env"),
        ("./server", "a program of whatever project a session is in"),
        ("node_modules/.bin/server", "a program of whatever project a session is in"),
        ("env A=1 ${project}/server", "a program of whatever project a session is in"),
    ],
)
def test_a_command_that_is_not_run_says_why(command: str, message: str) -> None:
    with pytest.raises(CommandError) as raised:
        launch_of(tuple(command.split()))
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("command", "changed"),
    [
        ("uvx a==1 --b", "uvx a==2.0 --b"),
        ("uvx a", "uvx a==2.0"),
        ("uvx a@1", "uvx a==2.0"),
        ("uvx --quiet a[x]>=1", "uvx --quiet a[x]==2.0"),
        ("uvx --from a==1 run a", "uvx --from a==2.0 run a"),
        ("uvx --from=a==1 run", "uvx --from=a==2.0 run"),
        ("uvx --with mcp<2 a==1", "uvx --with mcp<2 a==2.0"),
        ("uv tool run a==1", "uv tool run a==2.0"),
        ("pipx run --spec a==1 b", "pipx run --spec a==2.0 b"),
        ("env A=1 uvx a==1 a==1", "env A=1 uvx a==2.0 a==1"),
        ("npx -y @a/b@1 --x", "npx -y @a/b@2.0 --x"),
        ("npx @a/b", "npx @a/b@2.0"),
        ("npx -p @a/b@1 run", "npx -p @a/b@2.0 run"),
        ("npx --package=@a/b@1 run", "npx --package=@a/b@2.0 run"),
        ("bunx b@^1 b", "bunx b@2.0 b"),
    ],
)
def test_another_version_stands_in_the_place_of_the_one_before(command: str, changed: str) -> None:
    assert with_version(tuple(command.split()), "2.0") == tuple(changed.split())


@pytest.mark.parametrize("command", ["python -m server", "/opt/server", "node server.js", "uv run a==1"])
def test_a_command_without_a_package_has_no_other_version(command: str) -> None:
    with pytest.raises(CommandError, match="names no package"):
        with_version(tuple(command.split()), "2.0")


@pytest.mark.parametrize(
    "version", ["", "latest", "2 --x", "2.0@https://evil.example", "2/../x", "^2", "2\n", "1" * 65]
)
def test_what_is_no_version_is_refused(version: str) -> None:
    with pytest.raises(CommandError, match="write one as"):
        with_version(("uvx", "a==1"), version)


def file_of(project: Path, **section: Any) -> ToolFile:
    config = Config(sources={"git": SourceSection(**section)}, files=("/c/config.toml",))
    (found,) = (file for file in scan(sources_of(config, str(project)), str(project)).files if file.share)
    return found


def test_an_entry_is_a_tool_file_of_its_own(tmp_path: Path) -> None:
    file = file_of(tmp_path, mcp=["uvx", "mcp-server-git==1", "${project}"], tools=["a"])
    assert (file.path, file.stem, file.source, file.scope) == ("/c/config.toml/git.mcp", "git", "git", "git")
    assert json.loads(file.content) == {
        "name": "git",
        "command": ["mcp-server-git", str(tmp_path)],
        "tools": ["a"],
        "calls": 32,
        "said": ["uvx", "mcp-server-git==1", "${project}"],
    }
    assert (file.requires, file.share, file.project) == (("mcp-server-git==1",), "project", str(tmp_path))


def test_its_digest_is_that_of_the_entry_and_of_what_shares_it(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for place in (one, other):
        (place / ".toolcell" / "tools").mkdir(parents=True)
    plain: dict[str, Any] = {"mcp": ["server"]}
    digest = file_of(one, **plain).digest
    (one / ".toolcell" / "tools" / "a.py").write_text("")
    assert file_of(one, **plain).digest == digest
    assert file_of(one, **plain, priority=5).digest == digest
    for change in (
        {"mcp": ["server", "x"]},
        {"network": True},
        {"memory": "1GiB"},
        {"tools": ["a"]},
        {"env": ["A"]},
        {"share": "session"},
    ):
        assert file_of(one, **{**plain, **change}).digest != digest, change
    assert file_of(other, **plain).digest != digest
    assert file_of(one, **plain, share="user").digest == file_of(other, **plain, share="user").digest


def test_a_command_that_is_not_run_is_a_problem_of_its_entry(tmp_path: Path) -> None:
    config = Config(
        sources={
            "a": SourceSection(mcp=("docker", "run")),
            "b": SourceSection(mcp=("server", "${project}"), share="user"),
            "c": SourceSection(mcp=("server",)),
        },
        files=("/c/config.toml",),
    )
    found = scan(sources_of(config, str(tmp_path)), str(tmp_path))
    assert [file.stem for file in found.files] == ["c"]
    assert [(problem.path, problem.reason) for problem in found.problems] == [
        ("/c/config.toml/a.mcp", "broken"), ("/c/config.toml/b.mcp", "broken"),
    ]  # fmt: skip
    assert (
        found.problems[1].message
        == 'its command has ${project}, and with share = "user" it is started for no project.'
    )


def test_a_user_puts_no_server_in_a_source_that_root_s_file_enforces() -> None:
    config = Config(
        enforce=EnforceSection(sources=("team",)),
        sources={"team": SourceSection(mcp=("evil",)), "mine": SourceSection(mcp=("evil",))},
    )
    held = hold(config, {"team": SourceSection(mcp=("good",))})
    assert {name: section.mcp for name, section in held.sources.items()} == {"team": ("good",)}
    assert {each.path for each in held.held} == {("source", "team", "mcp"), ("source", "mine", "mcp")}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[source.project]\nmcp = ["x"]', "source.project.mcp: cannot be in project"),
        ('[source.user]\nmcp = ["x"]', "source.user.mcp: cannot be in user"),
        ('[source.a]\nmcp = ["x"]\ndirectory = "/x"', "source.a.directory: is for tool files"),
        ('[source.a]\nmcp = ["x"]\nfiles = ["/x.py"]', "source.a.files: is for tool files"),
        ('[source.a]\nmcp = ["x"]\npython = "/x"', "source.a.python: is for tool files"),
        (
            '[source.a]\ndirectory = "/x"\nshare = "user"',
            'source.a.share: is for an MCP server; add mcp = ["PROGRAM", …]',
        ),
        ('[source.a]\ndirectory = "/x"\nmemory = "1GiB"', "source.a.memory: is for an MCP server"),
        ("[source.a]\nmcp = []", "source.a.mcp: [] names no program"),
        ('[source.a]\nmcp = "uvx a"', "source.a.mcp:"),
        ('[source.a]\nmcp = ["a\\u0000"]', "is no command"),
        ('[source.a]\nmcp = ["x"]\nshare = "all"', "source.a.share:"),
        ('[source.a]\nurl = "https://example.org"', "source.a.url: unknown key"),
    ],
)
def test_mistakes_of_an_entry_are_named(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        load([str(path)])
    assert message in str(raised.value)
