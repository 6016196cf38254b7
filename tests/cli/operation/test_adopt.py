"""`toolcell mcp adopt` and `return`: what becomes of servers, what is shown of them, and files that are as they were."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import stat
import subprocess
import sys
import tomllib
from contextlib import ExitStack, chdir, redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any, Final, NamedTuple, cast
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cli.conftest import Project, fits

from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.exit_codes import Failure
from toolcell.cli.adapters.mcp_install.hosts import HOSTS
from toolcell.cli.adapters.mcp_install.json_edit import NotPlain, plain
from toolcell.cli.operation.adopt import adopt as adopting
from toolcell.cli.operation.adopt import places
from toolcell.cli.operation.adopt import saved as keeping
from toolcell.cli.operation.adopt.entries import Left, Server, masked, read
from toolcell.cli.operation.adopt.give_back import give_back
from toolcell.cli.operation.adopt.places import ServerPlace
from toolcell.cli.operation.adopt.plan import AdoptionPlan
from toolcelld.catalog.discovery import adoption

KEY: Final = "ghp-0123456789abcdefghijklmnopqrstuvwxyz"
FILES: Final = {
    "claude": ".claude.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".config/Code/User/mcp.json",
    "codex": ".codex/config.toml",
    "opencode": ".config/opencode/opencode.jsonc",
    "gemini": ".gemini/settings.json",
    "copilot": ".copilot/mcp-config.json",
    "qwen": ".qwen/settings.json",
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "windsurf": ".codeium/windsurf/mcp_config.json",
    "zed": ".config/zed/settings.json",
}

PLAIN: Final = """{
  "numStartups": 12, "ratio": 1.50e3,
  "%(outer)s": {
    "time": { "command": "uvx",   "args": ["mcp-server-time==2026.10.19"] },
    "github": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-github@2026.8.31"],
      "env": { "GITHUB_TOKEN": "%(key)s", "LOG_LEVEL": "debug" }
    },
    "remote": { "url": "https://mcp.example.org" }
  },
  "projects": { "/home": { "history": ["a", "b"] } }
}
"""

COMMENTED: Final = """// mine
{
  "theme": "One", /* dark // or not */
  "%(outer)s": {
    // the clock
    "time": { "command": "uvx", "args": ["mcp-server-time==2026.10.19"], }, // of Tokyo
    /* keys */ "github": { "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-github@2026.8.31",], // pinned
      "env": { "GITHUB_TOKEN": "%(key)s", "LOG_LEVEL": "debug", },
    },
    "remote": { "url": "https://mcp.example.org", }, // stays
  },
}
"""

OPENCODE: Final = """{
  // mine
  "mcp": {
    "time": { "type": "local", "command": ["uvx", "mcp-server-time==2026.10.19"], "enabled": true },
    "github": { "type": "local", "command": ["npx", "-y", "@modelcontextprotocol/server-github@2026.8.31"],
      "environment": { "GITHUB_TOKEN": "%(key)s", "LOG_LEVEL": "debug" } }, // pinned
    "remote": { "type": "remote", "url": "https://mcp.example.org" },
  },
}
"""

TOML: Final = '''# mine
model = "o5"   # the newest

[mcp_servers.time]  # the clock
command = "uvx"
args = ["mcp-server-time==2026.10.19"]

# keys
[mcp_servers.github]
command = "npx"
args = [
  "-y",
  "@modelcontextprotocol/server-github@2026.8.31",   # pinned
]
tool_timeout_sec = 90
[mcp_servers.github.env]
GITHUB_TOKEN = "%(key)s"
LOG_LEVEL = 'debug'

# a remote one
[mcp_servers.remote]
url = "https://mcp.example.org"

[profiles.fast]
text = """
[mcp_servers.no]
"""
'''


def text_for(key: str, *, comments: bool) -> str:
    text = {"codex": TOML, "opencode": OPENCODE}.get(key, COMMENTED if comments else PLAIN)
    return text % {"outer": HOSTS[key].outer, "key": KEY}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home directory of its own."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return home


class Done(NamedTuple):
    """How the command ended."""

    returncode: int
    stdout: str
    stderr: str


def run(home: Path, verb: str, *words: str, where: Path | None = None) -> Done:
    """The command, within this process, as is what it asks of the daemon's package: the tests run both some hundred times."""
    clean = {"PATH": os.environ["PATH"], "HOME": str(home), "TOOLCELL_SOCKET": str(home / "none.sock")}
    hosts = [word for word in words if word[0] != "-"] or None
    context = CommandContext(as_json="--json" in words)
    out, err = StringIO(), StringIO()
    with ExitStack() as stack:
        stack.enter_context(redirect_stdout(out))
        stack.enter_context(redirect_stderr(err))
        stack.enter_context(mock.patch.dict(os.environ, clean, clear=True))
        stack.enter_context(mock.patch.object(adopting, "run", answered))
        stack.enter_context(chdir(where or home))
        project = "--project" in words
        try:
            if verb == "adopt":
                code = asyncio.run(adopting.adopt(context, hosts, project=project, yes="--yes" in words))
            else:
                code = asyncio.run(give_back(context, hosts, project=project))
        except Failure as failure:
            print(failure.message, failure.remedy, sep="\n", file=err)
            code = failure.exit_code
    return Done(code, out.getvalue(), err.getvalue())


def answered(module: str, said: str) -> dict[str, Any]:
    """What the module of the daemon's package prints."""
    assert module == adoption.__name__
    printed = StringIO()
    with mock.patch.object(sys, "stdin", StringIO(said)), redirect_stdout(printed):
        adoption.main()
    return cast("dict[str, Any]", json.loads(printed.getvalue()))


def put(home: Path, key: str, text: str) -> Path:
    path = home / FILES[key]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def said(key: str, path: Path) -> Any:
    text = path.read_text()
    return tomllib.loads(text) if key == "codex" else json.loads(plain(text))


def configuration(home: Path) -> dict[str, Any]:
    path = home / ".config/toolcell/config.toml"
    return tomllib.loads(path.read_text()) if path.exists() else {}


def saved(home: Path) -> list[str]:
    return sorted(path.name for path in (home / ".local/state/toolcell/adopted").iterdir())


@pytest.mark.parametrize("end", ["\n", "\r\n", "no last newline"])
@pytest.mark.parametrize("comments", [False, True])
@pytest.mark.parametrize("key", FILES)
def test_servers_become_sources_and_the_file_is_returned_byte_for_byte(
    home: Path, key: str, comments: bool, end: str
) -> None:
    text = text_for(key, comments=comments)
    text = text.rstrip("\n") if end == "no last newline" else text.replace("\n", end)
    path = put(home, key, text)
    path.chmod(0o640)
    before = said(key, path)

    done = run(home, "adopt", key, "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert KEY not in done.stdout
    assert "remote stays: it is a remote server." in done.stdout
    now = said(key, path)
    outer = HOSTS[key].outer
    assert now[outer].keys() == {"toolcell", "remote"}
    assert HOSTS[key].is_ours(now[outer]["toolcell"])
    assert {name: it for name, it in now.items() if name != outer} == {
        name: it for name, it in before.items() if name != outer
    }
    secret = home / ".config/toolcell/secrets/GITHUB_TOKEN"
    found = configuration(home)
    github = {
        "mcp": ["env", "LOG_LEVEL=debug", "npx", "-y", "@modelcontextprotocol/server-github@2026.8.31"],
        "secrets": ["GITHUB_TOKEN"],
    }
    assert found == {
        "source": {
            "time": {"mcp": ["uvx", "mcp-server-time==2026.10.19"]},
            "github": github | ({"timeout": "90s"} if key == "codex" else {}),
        },
        "secrets": {"GITHUB_TOKEN": {"file": str(secret)}},
    }
    assert (secret.read_text(), stat.S_IMODE(secret.stat().st_mode)) == (KEY, 0o600)
    for name in saved(home):
        assert stat.S_IMODE((home / ".local/state/toolcell/adopted" / name).stat().st_mode) == 0o600
    assert stat.S_IMODE((home / ".local/state/toolcell/adopted").stat().st_mode) == 0o700

    done = run(home, "return", key)
    assert (done.returncode, done.stderr) == (0, "")
    assert path.read_bytes() == text.encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert configuration(home) == {}
    assert not secret.exists()
    assert saved(home) == []
    assert run(home, "return", key).returncode == 2


@pytest.mark.slow
def test_the_command_itself_adopts_and_returns(project: Project) -> None:
    text = text_for("cursor", comments=True)
    path = put(project.home, "cursor", text)
    asked = project.run("mcp", "adopt", "cursor")
    assert (asked.code, "toolcell mcp adopt --yes cursor" in asked.err) == (3, True)
    assert project.run("mcp", "adopt", "cursor", "--yes").code == 0
    assert "toolcell" in path.read_text()
    shown = project.run("config", "show")
    assert "mcp-server-time==2026.10.19" in shown.out
    assert KEY not in shown.out
    assert project.run("mcp", "return").code == 0
    assert path.read_text() == text


@pytest.mark.parametrize("key", FILES)
def test_a_file_that_was_changed_elsewhere_keeps_that_and_gets_its_servers(home: Path, key: str) -> None:
    text = text_for(key, comments=True)
    path = put(home, key, text)
    assert run(home, "adopt", key, "--yes").returncode == 0
    first = text.splitlines()[0]
    more = {"codex": ("model", "mode = 1\nmodel"), "opencode": ("// mine", '// more\n  "a": [1],')}.get(
        key, ("// mine", "// mine and yours")
    )
    path.write_text(path.read_text().replace(*more, 1))
    done = run(home, "return", key)
    assert (done.returncode, done.stderr) == (0, ""), first
    assert "keeps what else was changed" in done.stdout
    assert path.read_text() == text.replace(*more, 1)
    assert configuration(home) == {}


def changed(path: Path, what: str) -> None:
    found = json.loads(path.read_text())
    servers = found["mcpServers"]
    match what:
        case "x is new":
            servers["x"] = {"command": "x"}
        case "remote is gone":
            del servers["remote"]
        case _:
            servers["toolcell"]["env"] = {"A": KEY}
    path.write_text(json.dumps(found))


@pytest.mark.parametrize("what", ["x is new", "remote is gone", "toolcell is another"])
def test_a_file_whose_servers_were_changed_stays_and_the_way_on_is_named(home: Path, what: str) -> None:
    text = text_for("cursor", comments=False)
    path = put(home, "cursor", text)
    assert run(home, "adopt", "--yes").returncode == 0
    changed(path, what)
    there = path.read_bytes()
    done = run(home, "return")
    assert done.returncode == 3
    assert f"{path} stays as it is: its servers were changed since: {what}." in done.stderr
    assert KEY not in done.stderr + done.stdout
    assert path.read_bytes() == there
    assert configuration(home)["source"].keys() == {"time", "github"}
    copy, again = (line.strip() for line in done.stderr.splitlines()[-2:])
    subprocess.run(copy, shell=True, check=True)  # noqa: S602  # as a person types it
    assert again == "toolcell mcp return cursor"
    assert run(home, "return", "cursor").returncode == 0
    assert path.read_text() == text
    assert configuration(home) == {}


def test_a_file_that_has_gone_is_not_made_again(home: Path) -> None:
    path = put(home, "cursor", text_for("cursor", comments=False))
    assert run(home, "adopt", "--yes").returncode == 0
    path.unlink()
    done = run(home, "return")
    assert (done.returncode, "toolcell is gone" in done.stderr) == (3, True)
    assert not path.exists()


def test_nothing_is_changed_without_a_yes(home: Path) -> None:
    text = text_for("cursor", comments=False)
    path = put(home, "cursor", text)
    done = run(home, "adopt", "cursor")
    assert done.returncode == 3
    assert "Nothing is changed without a question or --yes: toolcell mcp adopt --yes cursor" in done.stderr
    assert f"GITHUB_TOKEN ({len(KEY)} characters) becomes the secret GITHUB_TOKEN" in done.stdout
    assert "LOG_LEVEL (5 characters) stays a variable in its command" in done.stdout
    assert "about TOOL of time has to name time_TOOL of toolcell" in done.stdout
    assert KEY not in done.stdout + done.stderr
    assert (path.read_text(), configuration(home), saved(home)) == (text, {}, [])
    assert not (home / ".config/toolcell/secrets").exists()


def test_a_second_time_there_is_nothing_to_adopt(home: Path) -> None:
    text = text_for("cursor", comments=True)
    path = put(home, "cursor", text)
    assert run(home, "adopt", "cursor", "--yes").returncode == 0
    once = path.read_bytes(), configuration(home), saved(home)
    again = run(home, "adopt", "cursor", "--yes")
    assert "remote stays: it is a remote server." in again.stdout
    assert (path.read_bytes(), configuration(home), saved(home)) == once
    assert run(home, "return", "cursor").returncode == 0
    assert path.read_bytes() == text.encode()


def test_equal_servers_are_one_source_until_the_last_host_has_its_own_again(home: Path) -> None:
    for key in ("cursor", "gemini"):
        put(home, key, text_for(key, comments=False))
    assert run(home, "adopt", "--yes").returncode == 0
    assert configuration(home)["source"].keys() == {"time", "github"}
    assert run(home, "return", "cursor").returncode == 0
    assert configuration(home)["source"].keys() == {"time", "github"}
    assert (home / ".config/toolcell/secrets/GITHUB_TOKEN").read_text() == KEY
    assert run(home, "return", "gemini").returncode == 0
    assert configuration(home) == {}
    assert not (home / ".config/toolcell/secrets/GITHUB_TOKEN").exists()


def test_an_entry_with_the_name_of_another_gets_a_name_of_its_own(home: Path) -> None:
    own = home / ".config/toolcell/config.toml"
    own.parent.mkdir(parents=True)
    own.write_text('# mine\n[source.a]\nmcp = ["mine"]\n')
    entries = {"a": {"command": "one"}, "project": {"command": "two"}, "ünï/..": {"command": "three"}}
    put(home, "cursor", json.dumps({"mcpServers": entries}))
    put(home, "gemini", json.dumps({"mcpServers": {"a": {"command": "four"}, "mine": {"command": "mine"}}}))
    assert run(home, "adopt", "--yes").returncode == 0
    assert {name: it["mcp"] for name, it in configuration(home)["source"].items()} == {
        "a": ["mine"], "a_cursor": ["one"], "project_cursor": ["two"], "n": ["three"], "a_gemini": ["four"], "mine": ["mine"],
    }  # fmt: skip
    assert run(home, "return").returncode == 0
    assert own.read_text() == '# mine\n[source.a]\nmcp = ["mine"]\n'


def test_a_key_with_the_name_of_another_leaves_its_server_with_the_host(home: Path) -> None:
    entries = {name: {"command": name, "env": {"API_KEY": f"{name}-0123456789"}} for name in ("one", "two")}
    path = put(home, "cursor", json.dumps({"mcpServers": entries}))
    done = run(home, "adopt", "--yes")
    assert "two stays: it needs another API_KEY than a server before it." in done.stdout
    assert json.loads(path.read_text())["mcpServers"].keys() == {"toolcell", "two"}
    assert configuration(home)["source"].keys() == {"one"}


def test_what_a_source_got_since_goes_with_it_and_one_that_is_another_by_now_stays(home: Path) -> None:
    put(home, "cursor", text_for("cursor", comments=False))
    assert run(home, "adopt", "--yes").returncode == 0
    own = home / ".config/toolcell/config.toml"
    text = own.read_text().replace('["uvx", "mcp-server-time==2026.10.19"]', '["mine"]')
    own.write_text(text.replace("[source.github]", '[source.github]\nnetwork = ["api.github.com"]'))
    done = run(home, "return")
    assert done.returncode == 0
    assert "source.time stays in the configuration" in done.stdout
    assert "has these no longer, unless another host has them: github\n" in done.stdout
    assert configuration(home) == {"source": {"time": {"mcp": ["mine"]}}}


def test_servers_of_one_project_in_claudes_own_file_are_found(home: Path) -> None:
    where = home / "project"
    where.mkdir()
    found: dict[str, Any] = {
        "projects": {
            str(where): {"allowedTools": [], "mcpServers": {"a": {"command": "one", "args": [str(where)]}}}
        }
    }
    text = json.dumps(found, indent=2)
    path = put(home, "claude", text)
    assert "No server was found." in run(home, "adopt").stdout
    assert run(home, "adopt", "--yes", where=where).returncode == 0
    (servers,) = [it["mcpServers"] for it in json.loads(path.read_text())["projects"].values()]
    assert servers.keys() == {"toolcell"}
    assert configuration(home)["source"]["a"]["mcp"] == ["one", "${project}"]
    path.write_text(path.read_text().replace('"allowedTools": []', '"allowedTools": ["x"]'))
    assert run(home, "return").returncode == 0
    assert path.read_text() == text.replace('"allowedTools": []', '"allowedTools": ["x"]')


def test_files_of_a_project_are_left_alone_unless_they_are_meant(home: Path) -> None:
    where = home / "project"
    where.mkdir()
    text = json.dumps({"mcpServers": {"a": {"command": "one", "args": [str(where / "b")]}}})
    (where / ".mcp.json").write_text(text)
    assert "No server was found." in run(home, "adopt", "--yes", where=where).stdout
    assert run(home, "adopt", "--project", "--yes", where=where).returncode == 0
    servers = json.loads((where / ".mcp.json").read_text())["mcpServers"]
    assert servers["toolcell"]["command"] == "toolcell"
    assert str(home) not in json.dumps(servers)
    assert configuration(home)["source"]["a"]["mcp"] == ["one", "${project}/b"]
    assert run(home, "return", where=where).returncode == 2
    assert run(home, "return", "--project", where=where).returncode == 0
    assert (where / ".mcp.json").read_text() == text


def test_rules_of_claude_are_named_with_what_they_have_to_say(home: Path) -> None:
    git = {"command": "git-server", "env": {"LEVEL": "info"}}
    put(home, "claude", json.dumps({"mcpServers": {"git": git, "far": {"url": "https://a.example"}}}))
    (home / ".claude").mkdir()
    rules = ["mcp__git", "mcp__git__git_status", "mcp__git__log*", "mcp__gitlab__x", "Bash"]
    (home / ".claude/settings.json").write_text(json.dumps({"permissions": {"allow": rules}}))
    done = run(home, "adopt", "--json")
    said = json.loads(done.stdout)
    fits(said, "mcp adopt")
    (file,) = said["files"]
    assert file["rules"] == {
        "mcp__git": "mcp__toolcell__git_*",
        "mcp__git__git_status": "mcp__toolcell__git_status",
        "mcp__git__log*": "mcp__toolcell__git_log*",
    }


def test_what_install_prints_for_programs_fits_its_schema(project: Project) -> None:
    shown = project.run("mcp", "install", "cursor", "--json").json("mcp install")
    assert "toolcell" in shown["configuration"]["mcpServers"]
    assert project.run("mcp", "install", "cursor", "--write", "--json").json("mcp install")["changed"]


# Entries


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"url": "https://a.example"}, "is a remote server"),
        ({"command": "a", "disabled": True}, "is switched off"),
        ({"command": "a", "cwd": "/elsewhere"}, "is started in a directory of its own (cwd)"),
        ({"command": "a", "envFile": ".env"}, "has its variables in a file (envFile)"),
        ({"command": "a", "args": "b"}, "has arguments that are no list"),
        ({"command": "a", "args": [1]}, "has no command"),
        ({"command": ""}, "has no command"),
        ({}, "has no command"),
        ([], "is no object"),
        ({"command": "a", "args": ["${input:key}"]}, "has ${input:key}, which Toolcell does not replace"),
        ({"command": "a", "args": ["${project}"]}, "has ${project} in its command, which is a word of Toolcell"),
        ({"command": "a", "env": {"A": "x ${HOME}"}}, "has ${HOME}, which Toolcell does not replace"),
        ({"command": "a", "env": {"A B": "x"}}, "has variables that are no names and texts"),
        ({"command": "a", "env_vars": [[1]]}, "has variables that are no names and texts"),
        ({"command": "a", "env": {"A": 1}}, "has variables that are no names and texts"),
        ({"command": "a", "env": {"A": "\ud800"}}, "has variables that are no names and texts"),
        ({"command": "a", "env": {f"A{number}": "x" for number in range(200)}}, "has more than 128 variables"),
        ({"command": "a", "args": ["x"] * 300}, "has a command of more than 256 words, or one that is no text"),
        ({"command": "/usr/bin/toolcell", "args": ["mcp"]}, "is Toolcell itself"),
        ({"command": "a", "env": {"KEY": "x" * 9000}}, "has a variable KEY that is too long for a secret, or ends with a newline"),
    ],
)  # fmt: skip
def test_what_no_source_can_say_stays_with_its_host(entry: object, why: str) -> None:
    assert read("cursor", HOSTS["cursor"], "a", entry, "") == Left("a", why)


@pytest.mark.parametrize(
    ("key", "env", "section"),
    [
        ("claude", {"TOKEN": "${TOKEN}"}, {"secrets": ["TOKEN"]}),
        ("claude", {"MODE": "${MODE}"}, {"env": ["MODE"]}),
        ("cursor", {"TOKEN": "${env:MINE}"}, {"secrets": ["TOKEN"]}),
        ("gemini", {"TOKEN": "$TOKEN"}, {"secrets": ["TOKEN"]}),
        ("cursor", {"PATH": "/usr/bin:/bin"}, {"mcp": ["env", "PATH=/usr/bin:/bin", "a"]}),
        ("cursor", {"FILE": "${workspaceFolder}/a"}, {"mcp": ["env", "FILE=${project}/a", "a"]}),
        ("cursor", {"PORT": "8080"}, {"mcp": ["env", "PORT=8080", "a"]}),
        ("cursor", {"PASSWORD": "hunter"}, {"secrets": ["PASSWORD"]}),
        ("cursor", {"DB": "postgres://me:secret@host/db"}, {"secrets": ["DB"]}),
        ("cursor", {"ID": "a1b2c3d4e5"}, {"secrets": ["ID"]}),
        ("cursor", {"SITE": "https://a.example/x"}, {"mcp": ["env", "SITE=https://a.example/x", "a"]}),
    ],
)  # fmt: skip
def test_a_variable_becomes_what_its_value_says(
    key: str, env: dict[str, str], section: dict[str, Any]
) -> None:
    found = read(key, HOSTS[key], "a", {"command": "a", "env": env}, "")
    assert isinstance(found, Server)
    assert found.section == {"mcp": ["a"], **section}
    assert not any(value in repr(found) for value in env.values() if "secrets" in section)


def test_what_looks_like_a_key_is_not_shown() -> None:
    words = [
        "a",
        "--api-key",
        "x1",
        "--token=x2",
        "-H",
        "Authorization: Bearer x3",
        "db://u:x4@host",
        "x5" * 12,
        "--port",
        "80",
    ]
    assert list(masked(words)) == [
        "a", "--api-key", "•••", "--token=•••", "-H", "•••", "db://•••@host", "•••", "--port", "80",
    ]  # fmt: skip


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
ENTRY_KEYS: Final = st.sampled_from(
    ["command", "args", "env", "environment", "env_vars", "cwd", "timeout", "tools", "type", "url", "x"]
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(HOSTS)), st.dictionaries(ENTRY_KEYS, json_values, max_size=8))
def test_no_entry_is_read_into_anything_but_a_source_or_a_reason(key: str, entry: dict[str, Any]) -> None:
    found = read(key, HOSTS[key], "a", dict.fromkeys(("command", "cmd"), "x") | entry, "")
    assert isinstance(found, Server | Left)
    if isinstance(found, Server):
        assert all(isinstance(word, str) and word.encode() is not None for word in found.section["mcp"])


# Hostile files


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"mcpServers": 1}', "{" * 100_000, '{"mcpServers": {}, "mcpServers": {}}']
)
def test_a_broken_file_stays_and_the_others_are_adopted(home: Path, text: str) -> None:
    broken = put(home, "cursor", text)
    put(home, "gemini", text_for("gemini", comments=False))
    done = run(home, "adopt", "--yes")
    assert done.returncode == 0
    assert f"{broken} stays as it is" in done.stdout
    assert broken.read_text() == text
    assert configuration(home)["source"].keys() == {"time", "github"}


@pytest.mark.parametrize("what", ["link", "pipe", "hard link", "open to others"])
def test_a_file_that_is_not_the_users_own_alone_stays(home: Path, what: str, tmp_path: Path) -> None:
    text = text_for("cursor", comments=False)
    path = put(home, "cursor", text)
    match what:
        case "link":
            path.rename(tmp_path / "theirs")
            path.symlink_to(tmp_path / "theirs")
        case "pipe":
            path.unlink()
            os.mkfifo(path)
        case "hard link":
            os.link(path, tmp_path / "other")
        case _:
            path.parent.chmod(0o777)
    done = run(home, "adopt", "--yes")
    assert f"{path} stays as it is" in done.stdout
    assert configuration(home) == {}
    assert saved(home) == []
    if what == "pipe":
        path.unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_stays(home: Path) -> None:
    path = put(home, "cursor", text_for("cursor", comments=False))
    os.chown(path, 12345, 12345)
    done = run(home, "adopt", "--yes")
    assert "it belongs to user 12345" in done.stdout
    assert configuration(home) == {}


def test_names_cannot_control_the_terminal(home: Path) -> None:
    name = "a\x1b[31m\u202eb\n"
    entries = {
        name: {"command": name, "args": [name], name: 1},
        f"b{name}": {"command": "b", "env": {name: name}},
    }
    put(home, "cursor", json.dumps({"mcpServers": entries}))
    done = run(home, "adopt", "--yes")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout + done.stderr
    assert "\u202e" not in done.stdout + done.stderr
    (source,) = configuration(home)["source"]
    assert source == "a_31m_b"


def test_an_entry_of_another_program_with_our_name_is_not_replaced(home: Path) -> None:
    text = json.dumps({"mcpServers": {"a": {"command": "a"}, "toolcell": {"command": "theirs"}}})
    path = put(home, "cursor", text)
    done = run(home, "adopt", "--yes")
    assert 'its "toolcell" was written or changed by another program' in done.stdout
    assert (path.read_text(), configuration(home)) == (text, {})


def test_a_file_that_changes_while_it_is_asked_stays_and_its_servers_with_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(home, "cursor", text_for("cursor", comments=False))
    keep = keeping.keep

    def racing(*arguments: Any) -> None:
        keep(*arguments)
        path.write_text('{"mcpServers": {"new": {"command": "new"}}}')

    monkeypatch.setattr(keeping, "keep", racing)
    done = run(home, "adopt", "--yes")
    assert done.returncode == 1
    assert "it was changed just now; try again" in done.stdout
    assert path.read_text() == '{"mcpServers": {"new": {"command": "new"}}}'
    assert (configuration(home), saved(home)) == ({}, [])
    assert not (home / ".config/toolcell/secrets/GITHUB_TOKEN").exists()


def test_one_that_was_killed_halfway_is_undone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = text_for("cursor", comments=False)
    path = put(home, "cursor", text)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(adopting, "replace", killed)
    with suppress(KeyboardInterrupt):
        run(home, "adopt", "--yes")
    monkeypatch.undo()
    assert path.read_text() == text
    assert configuration(home)["source"].keys() == {"time", "github"}
    assert run(home, "return").returncode == 0
    assert (path.read_text(), configuration(home), saved(home)) == (text, {}, [])


def test_a_configuration_that_cannot_be_used_changes_nothing(home: Path) -> None:
    own = home / ".config/toolcell/config.toml"
    own.parent.mkdir(parents=True)
    own.write_text("[daemon]\nwhat = 1\n")
    text = text_for("cursor", comments=False)
    path = put(home, "cursor", text)
    assert run(home, "adopt", "--yes").returncode == 1
    assert (path.read_text(), saved(home)) == (text, [])
    assert not (own.parent / "secrets").exists()


@pytest.mark.parametrize("what", ["a link", "open to others", "held", "a record that is none"])
def test_records_are_read_where_only_the_user_can_write(home: Path, tmp_path: Path, what: str) -> None:
    path = put(home, "cursor", text_for("cursor", comments=False))
    assert run(home, "adopt", "--yes").returncode == 0
    there, own = path.read_text(), home / ".local/state/toolcell/adopted"
    with ExitStack() as stack:
        match what:
            case "a link":
                own.rename(tmp_path / "theirs")
                own.symlink_to(tmp_path / "theirs")
            case "open to others":
                own.chmod(0o755)
            case "held":
                descriptor = os.open(own, os.O_RDONLY)
                stack.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            case _:
                next(own.glob("*.record")).write_text('{"form": 1}')
        done = run(home, "return")
        assert done.returncode in (1, 2), done
        assert "Traceback" not in done.stderr
    assert path.read_text() == there
    assert "source" in configuration(home)


def test_a_docker_server_stays(home: Path) -> None:
    put(
        home,
        "cursor",
        json.dumps({"mcpServers": {"a": {"command": "docker", "args": ["run", "x"]}, "b": {"command": "b"}}}),
    )
    done = run(home, "adopt", "--yes")
    assert "a stays: it" in done.stdout
    assert "gives every client the whole machine" in done.stdout
    assert configuration(home)["source"].keys() == {"b"}


def test_a_key_is_not_written_over_a_file_that_is_there(home: Path) -> None:
    secrets = home / ".config/toolcell/secrets"
    secrets.mkdir(parents=True)
    (secrets / "GITHUB_TOKEN").symlink_to(home / "planted")
    put(home, "cursor", text_for("cursor", comments=False))
    done = run(home, "adopt", "--yes")
    assert "github stays: it needs GITHUB_TOKEN, and" in done.stdout
    assert not (home / "planted").exists()
    assert configuration(home)["source"].keys() == {"time"}


TABLES: Final = st.lists(
    st.sampled_from(
        [
            '[mcp_servers.a]\ncommand = "a"\n', "[mcp_servers.a.env]\nA = '1'\n", '# remark\n', "\n", '[mcp_servers."b.c"] # x\ncommand = "b"\n',
            '[other]\ntext = """\n[mcp_servers.a]\n"""\n', "[[many]]\nx = 1\n", "[mcp_servers.d]\nargs = [\n[1],\n[2]\n]\n", "top = 1\n",
        ]
    ),
    max_size=8,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(TABLES, st.booleans())
def test_any_toml_comes_back_or_is_refused(parts: list[str], crlf: bool) -> None:
    text = "".join(parts).replace("\n", "\r\n" if crlf else "\n")
    place = ServerPlace("codex", "/none")
    entry = '[mcp_servers.toolcell]\ncommand = "toolcell"\n'
    try:
        before = place.servers(text)
        names = [name for name in ("a", "b.c") if name in before]
        after = place.without(text, names, {}, entry)
    except NotPlain:
        return
    assert place.servers(after).keys() == before.keys() - set(names) | {"toolcell"}
    assert place.restored(after, text, after) == text
    try:
        restored = place.restored("# more\n" + after, text, after)
    except NotPlain:
        return
    assert place.servers(restored) == before


def test_plans_and_places_are_values() -> None:
    """What is written into records and messages has no key in its representation."""
    entry = {"command": "a", "env": {"KEY": KEY}}
    plan = AdoptionPlan("/secrets", frozenset(), {}, {})
    place = ServerPlace("cursor", "/none")
    found = read("cursor", HOSTS["cursor"], "a", entry, "")
    plan.add(place, json.dumps(entry), [found])
    assert KEY not in repr(plan)
    assert [it.host.title for it in places.places_of("cursor", {"HOME": "/h"}, None)] == ["Cursor"]
