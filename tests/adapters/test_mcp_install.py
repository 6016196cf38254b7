"""`toolcell mcp install`: what it prints, what it writes into other programs' files, and what it leaves alone."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import stat
import subprocess
import sys
import textwrap
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.daemons import RunningDaemon
from typer.testing import CliRunner

from toolcell.cli._command_line.app import app
from toolcell.cli.adapters.mcp_install import own_command
from toolcell.cli.adapters.mcp_install.hosts import HOSTS
from toolcell.cli.adapters.mcp_install.json_edit import NotPlain, member, plain, with_member, without_member
from toolcell.cli.adapters.mcp_install.toml_edit import with_server, without_server
from toolcelld.config.protected import PROTECTED

SECONDS_MAX = 30
UMASK = os.umask(0o077)
os.umask(UMASK)
FILES = {
    "claude": ".claude.json",
    "copilot": ".copilot/mcp-config.json",
    "opencode": ".config/opencode/opencode.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".config/Code/User/mcp.json",
    "codex": ".codex/config.toml",
    "gemini": ".gemini/settings.json",
    "qwen": ".qwen/settings.json",
    "kilo": ".config/kilo/kilo.json",
    "cline": ".cline/data/settings/cline_mcp_settings.json",
    "continue": ".continue/mcpServers/toolcell.json",
    "vibe": ".vibe/config.toml",
    "crush": ".config/crush/crush.json",
    "amp": ".config/amp/settings.json",
    "kiro": ".kiro/settings/mcp.json",
    "junie": ".junie/mcp/mcp.json",
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "windsurf": ".codeium/windsurf/mcp_config.json",
    "zed": ".config/zed/settings.json",
    "goose": ".config/goose/config.yaml",
}
OUTER = dict.fromkeys(FILES, "mcpServers") | {
    "opencode": "mcp",
    "vscode": "servers",
    "codex": "mcp_servers",
    "kilo": "mcp",
    "vibe": "mcp_servers",
    "crush": "mcp",
    "amp": "amp.mcpServers",
    "zed": "context_servers",
    "goose": "extensions",
}
PROJECT_FILES = {
    "claude": ".mcp.json",
    "opencode": "opencode.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".vscode/mcp.json",
    "codex": ".codex/config.toml",
    "gemini": ".gemini/settings.json",
    "qwen": ".qwen/settings.json",
    "kilo": "kilo.json",
    "continue": ".continue/mcpServers/toolcell.json",
    "vibe": ".vibe/config.toml",
    "crush": "crush.json",
    "amp": ".amp/settings.json",
    "kiro": ".kiro/settings/mcp.json",
    "junie": ".junie/mcp/mcp.json",
    "zed": ".zed/settings.json",
}
WORKSPACE = {"TOOLCELL_DIRECTORY": "${workspaceFolder}"}


def install(home: Path, *words: str, **environment: str | None) -> subprocess.CompletedProcess[str]:
    """The command, within this process: the tests run it some hundred times."""
    clean = dict.fromkeys(os.environ) | {"PATH": str(home / "bin"), "HOME": str(home)} | environment
    with contextlib.chdir(home):
        done = CliRunner().invoke(app, ["mcp", "install", *words], env=clean, prog_name="toolcell")
    return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home directory of its own."""
    home = tmp_path / "home"
    home.mkdir()
    return home


def said(host: str, text: str) -> Any:
    """What a configuration says, by a reader of its format that is not ours."""
    match host:
        case "codex":
            return tomllib.loads(text)
        case "vibe":
            whole = tomllib.loads(text)
            return whole | {"mcp_servers": {found["name"]: found for found in whole["mcp_servers"]}}
        case "goose":
            return yaml.safe_load(text)
        case _:
            return json.loads(plain(text))


def started(host: str, entry: dict[str, Any]) -> list[str]:
    """The command of an entry."""
    match host:
        case "opencode" | "kilo":
            return list(entry["command"])
        case "goose":
            return [entry["cmd"], *entry["args"]]
        case _:
            return [entry["command"], *entry["args"]]


JSON = [name for name in HOSTS if HOSTS[name].format == "JSON"]


@pytest.fixture(params=JSON)
def host(request: pytest.FixtureRequest) -> str:
    """Each host whose file is JSON."""
    name: str = request.param
    return name


def put(home: Path, host: str, text: str) -> Path:
    path = home / FILES[host]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def everything(home: Path) -> list[str]:
    return sorted(
        str(path.relative_to(home)) for path in home.rglob("*") if path.is_file() or path.is_symlink()
    )


@pytest.mark.parametrize("host", HOSTS)
def test_it_prints_and_touches_nothing(home: Path, host: str) -> None:
    done = install(home, host)
    assert done.returncode == 0
    printed = said(host, done.stdout)
    assert list(printed) == [OUTER[host]]
    command = started(host, printed[OUTER[host]]["toolcell"])
    assert os.path.isabs(command[0])
    assert os.access(command[0], os.X_OK)
    assert command[1:] == ["mcp"]
    assert str(home / FILES[host]) in done.stderr
    assert list(home.iterdir()) == []


def test_what_is_written_is_what_is_printed_and_is_taken_back(home: Path, host: str) -> None:
    printed = said(host, install(home, host).stdout)
    path = home / FILES[host]

    done = install(home, host, "--write")
    assert done.returncode == 0
    assert done.stderr == (HOSTS[host].remark.format(name=host) + "\n" if HOSTS[host].remark else "")
    assert said(host, path.read_text()) == printed
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    before = path.stat()
    again = install(home, host, "--write")
    assert again.returncode == 0
    assert "already" in again.stdout
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)

    assert install(home, host, "--remove").returncode == 0
    if not HOSTS[host].alone:
        assert said(host, path.read_text()) == {}
    done = install(home, host, "--remove")
    assert (done.returncode, done.stdout) == (0, f"{path} has no toolcell.\n")
    assert everything(home) == ([] if HOSTS[host].alone else [FILES[host]])


def test_the_command_itself_writes(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "toolcell.cli", "mcp", "install", "zed", "--write"],
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
        cwd=home,
        text=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    path = home / FILES["zed"]
    assert (done.returncode, done.stdout) == (0, f"Wrote toolcell into {path}. Start Zed again.\n")
    assert json.loads(path.read_text()) == json.loads(install(home, "zed").stdout)


@pytest.mark.parametrize("host", HOSTS)
def test_there_is_nothing_to_take_back_where_nothing_is(home: Path, host: str) -> None:
    assert install(home, host, "--remove").returncode == 0
    assert list(home.iterdir()) == []


OTHERS = """{
\t"numStartups":  12, "ratio": 1.50e3,\t"name": "J\\u00f6rg \\/ \\ud83e\\udd80",
\t"%s": {
\t\t"other": { "command": "x", "args": [ ] }
\t},
\t"projects": { "/home": { "mcpServers": { "toolcell": 1 } } }
}
"""


COMMENTED = """// mine
{
  "theme": "One", /* dark // or not */
  "%s": {
    // the first
    "other": { "command": "http://x", "args": [ ], }, // and the last
  },
}
"""


# Each host with one of the cases, and one host with all: the editor is the same.
KINDS = list(itertools.product((0o600, 0o640), ("plain", "with comments"), ("\n", "")))
CASES = [(name, *KINDS[number % len(KINDS)]) for number, name in enumerate(JSON)]


@pytest.mark.parametrize(
    ("host", "mode", "kind", "end"), dict.fromkeys([*CASES, *(("cursor", *each) for each in KINDS)])
)
def test_everything_else_stays_byte_for_byte(home: Path, host: str, mode: int, kind: str, end: str) -> None:
    others = (OTHERS if kind == "plain" else COMMENTED).replace("%s", OUTER[host]).rstrip("\n") + end
    path = put(home, host, others)
    path.chmod(mode)

    assert install(home, host, "--write").returncode == 0
    written = path.read_text()
    before, after = said(host, others), said(host, written)
    assert started(host, after[OUTER[host]].pop("toolcell"))[1:] == ["mcp"]
    assert after == before
    assert all(line in written for line in others.splitlines())
    assert stat.S_IMODE(path.stat().st_mode) == mode

    assert install(home, host, "--remove").returncode == 0
    assert path.read_bytes() == others.encode()
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert everything(home) == [FILES[host]]


@pytest.mark.parametrize("host", ["cursor", "kilo", "crush", "claude"])
def test_an_entry_that_we_wrote_from_elsewhere_is_brought_up_to_date(home: Path, host: str) -> None:
    assert install(home, "-C", str(home), host, "--write").returncode == 0
    path = home / FILES[host]
    old = path.read_text()
    assert str(home) in old
    path.write_text(old.replace(os.path.dirname(sys.executable), "/opt/old/bin"))
    assert install(home, host, "--write").returncode == 0
    assert said(host, path.read_text()) == said(host, install(home, host).stdout)


def changed(host: str, text: str) -> str:
    """A configuration in which another program, or a person, has changed the entry."""
    written = json.loads(text)
    written[OUTER[host]]["toolcell"]["env"] = {"A": "b"}
    return json.dumps(written)


@pytest.mark.sampled(pairs=True)
@pytest.mark.parametrize("what", ["changed", "foreign", "no object"])
@pytest.mark.parametrize("host", ["cursor", "kilo", "cline", "continue"])
@pytest.mark.parametrize("option", ["--write", "--remove"])
def test_an_entry_that_is_not_ours_stays(home: Path, host: str, what: str, option: str) -> None:
    outer = OUTER[host]
    theirs = {
        "changed": changed(host, install(home, host).stdout),
        "foreign": json.dumps({outer: {"toolcell": {"command": "theirs", "args": ["mcp"]}}}),
        "no object": json.dumps({outer: {"toolcell": "mcp"}}),
    }[what]
    path = put(home, host, theirs)
    done = install(home, host, option)
    assert done.returncode == 2
    assert "stays as it is" in done.stderr
    assert path.read_text() == theirs


@pytest.mark.parametrize(
    "others", ['{\n  "a": 1\n}\n', '{"a": [1, {"b": 2}]}', '// mine\n{\n  // kept\n  "a": 1,\n}\n']
)
@pytest.mark.parametrize("name", ["cursor", "vscode", "claude", "zed"])
def test_a_host_keeps_no_key_that_was_not_there_before(home: Path, name: str, others: str) -> None:
    path = put(home, name, others)
    assert install(home, name, "--write").returncode == 0
    assert install(home, name, "--remove").returncode == 0
    assert path.read_text() == others


@pytest.mark.parametrize("why", ["read-only", "hard link"])
@pytest.mark.parametrize("host", ["cursor", "continue"])
def test_a_file_that_would_change_in_part_or_against_its_mode_stays_as_it_is(
    home: Path, host: str, why: str
) -> None:
    path = put(home, host, "")
    if why == "read-only":
        path.chmod(0o444)
    else:
        os.link(path, home / "other")
    done = install(home, host, "--write")
    assert done.returncode == 2
    assert why in done.stderr
    assert path.read_text() == ""


@pytest.mark.parametrize("name", ["cursor", "vscode", "claude", "copilot"])
def test_an_entry_of_an_earlier_version_is_brought_up_to_date(home: Path, name: str) -> None:
    printed = json.loads(install(home, name, "--project" if name == "vscode" else "-q").stdout)
    entry = printed[OUTER[name]]["toolcell"]
    old = {key: value for key, value in entry.items() if key in ("command", "args", "type")}
    path = put(home, name, json.dumps({OUTER[name]: {"toolcell": old}}))
    assert install(home, name, "--write").returncode == 0
    assert json.loads(path.read_text()) == json.loads(install(home, name).stdout)


@pytest.mark.parametrize(
    "text",
    [
        '{ "mcpServers": {,} }',
        '{ "mcpServers": { "a": 1,, } }',
        '{ "mcpServers": { "a": [,] } }',
        '{ "mcpServers": {} } /* no end',
        '{ "mcpServers": {} / }',
        "{ 'mcpServers': {} }",
        '{ "mcpServers": [] }',
        "[]",
        "{}{}",
        '{"a": NaN}',
        '{"mcpServers": {}, "mcpServers": {}}',
        "{" * 100_000,
        '{"a": ' + "[" * 200_000 + "}",
        '\ufeff{"a": 1}',
        "{",
        '{"a"',
        '{"a": 1',
        "{1: 2}",
    ],
)
def test_a_file_that_is_not_plain_json_is_refused_with_the_text_to_paste(home: Path, text: str) -> None:
    path = put(home, "cursor", text)
    done = install(home, "cursor", "--write")
    assert (done.returncode, done.stdout) == (2, "")
    assert "stays as it is" in done.stderr
    assert "Traceback" not in done.stderr
    pasted = done.stderr[done.stderr.index("  {\n") :]
    assert json.loads(pasted) == json.loads(install(home, "cursor").stdout)
    assert path.read_text() == text
    assert everything(home) == [FILES["cursor"]]


def test_bytes_that_are_no_text_are_refused(home: Path) -> None:
    path = home / ".claude.json"
    path.write_bytes(b'{"a": "\xff"}')
    assert install(home, "claude", "--write").returncode == 2
    assert path.read_bytes() == b'{"a": "\xff"}'


@pytest.mark.parametrize("host", ["cursor", "continue", "cline"])
def test_a_link_is_neither_followed_nor_replaced(home: Path, host: str, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.json"
    for text in (None, "{}"):
        if text is not None:
            theirs.write_text(text)
        path = home / FILES[host]
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_symlink():
            path.symlink_to(theirs)
        done = install(home, host, "--write")
        assert done.returncode == 2
        assert "it is a link" in done.stderr
        assert path.is_symlink()
        assert (theirs.read_text() if theirs.exists() else None) == text


def test_a_directory_that_others_can_write_is_not_written_to(home: Path) -> None:
    (home / ".cursor").mkdir()
    (home / ".cursor").chmod(0o777)
    done = install(home, "cursor", "--write")
    assert done.returncode == 2
    assert "others can write" in done.stderr
    assert everything(home) == []


def test_a_pipe_does_not_hold_it_up(home: Path) -> None:
    os.mkfifo(home / ".claude.json")
    try:
        assert install(home, "claude", "--write").returncode == 2
    finally:
        (home / ".claude.json").unlink()


@pytest.mark.parametrize(
    ("host", "variable", "file"),
    [
        ("claude", "CLAUDE_CONFIG_DIR", ".claude.json"),
        ("copilot", "COPILOT_HOME", "mcp-config.json"),
        ("opencode", "XDG_CONFIG_HOME", "opencode/opencode.json"),
        ("vscode", "XDG_CONFIG_HOME", "Code/User/mcp.json"),
    ],
)
def test_a_host_that_was_moved_is_found(home: Path, host: str, variable: str, file: str) -> None:
    elsewhere = home / "elsewhere"
    assert install(home, host, "--write", **{variable: str(elsewhere)}).returncode == 0
    assert everything(home) == [f"elsewhere/{file}"]


def test_opencodes_file_with_comments_is_edited(home: Path) -> None:
    path = home / ".config/opencode/opencode.jsonc"
    path.parent.mkdir(parents=True)
    path.write_text("{\n  // mine\n}")
    assert install(home, "opencode", "--write").returncode == 0
    assert path.read_text().startswith("{\n  // mine\n")
    assert json.loads(plain(path.read_text())) == json.loads(install(home, "opencode").stdout)
    assert everything(home) == [".config/opencode/opencode.jsonc"]


# The file of a project


def test_a_projects_file_is_for_all_who_have_it(home: Path) -> None:
    project = home / "project"
    project.mkdir()
    for name, file in PROJECT_FILES.items():
        assert install(home, "-C", str(project), name, "--project", "--write").returncode == 0
        text = (project / file).read_text()
        entry = said(name, text)[OUTER[name]]["toolcell"]
        assert started(name, entry) == ["toolcell", "mcp"]
        assert str(home) not in text
        assert os.path.dirname(sys.executable) not in text
        assert entry.get("env") == (WORKSPACE if name in ("cursor", "vscode") else None)
        assert stat.S_IMODE((project / file).stat().st_mode) == 0o666 & ~UMASK
    assert sorted(everything(home)) == sorted(f"project/{file}" for file in PROJECT_FILES.values())
    for name in PROJECT_FILES:
        assert install(home, "-C", str(project), name, "--project", "--remove").returncode == 0


def test_no_tool_can_change_what_a_host_starts_in_a_project() -> None:
    for file in (file for host in HOSTS.values() for file in host.project):
        assert any(fnmatch(file.split("/")[0], name) for name in PROTECTED), file


def test_the_users_file_has_the_variable_where_the_host_knows_it_there(home: Path) -> None:
    def env(*words: str) -> object:
        printed = json.loads(install(home, *words).stdout)
        return next(iter(printed.values()))["toolcell"].get("env")

    assert env("cursor") == WORKSPACE
    assert env("-C", str(home), "cursor") is None  # a person has named a directory
    assert env("vscode") is None  # it starts no server there with a variable that it cannot replace
    assert env("claude") is None


def test_a_projects_file_behind_a_link_is_not_written(home: Path) -> None:
    (home / "elsewhere").mkdir()
    (home / ".vscode").symlink_to("elsewhere")
    done = install(home, "vscode", "--project", "--write")
    assert done.returncode == 2
    assert "is a link" in done.stderr
    assert everything(home) == [".vscode"]


def test_hosts_without_a_workspace_say_that_a_directory_is_wanted(home: Path) -> None:
    for name in ("claude-desktop", "windsurf"):
        assert f"toolcell -C DIR mcp install {name}" in install(home, name).stderr
        assert "no workspace" not in install(home, "-C", str(home), name).stderr


# Files that are not edited, and the hosts' own commands


def pasted(done: subprocess.CompletedProcess[str]) -> str:
    """What is to be put into a file by hand."""
    return textwrap.dedent(done.stderr.split("put this into it.\n")[1])


@pytest.mark.parametrize("text", [None, "", "# mine\nextensions: {a: 1}\n", "{"])
def test_yaml_is_not_edited_and_the_whole_text_to_paste_is_printed(home: Path, text: str | None) -> None:
    if text is not None:
        put(home, "goose", text)
    before = everything(home)
    done = install(home, "goose", "--write")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{home / FILES['goose']} stays as it is: it is YAML, which is not edited." in done.stderr
    assert said("goose", pasted(done)) == said("goose", install(home, "goose").stdout)
    done = install(home, "goose", "--remove")
    if text:
        assert (done.returncode, 'take "toolcell" out of "extensions"' in done.stderr) == (2, True)
    else:
        assert done.returncode == 0
    assert everything(home) == before
    assert text is None or (home / FILES["goose"]).read_text() == text


HOSTILE = "/a \x01\x7f\x85\u2028\U000e0001\U0001f980'\"\\{#}:\t]"


@pytest.mark.parametrize("name", ["codex", "vibe", "goose"])
def test_what_is_to_be_pasted_says_a_path_with_any_letters(home: Path, name: str) -> None:
    directory = home / HOSTILE.strip("/")
    directory.mkdir()
    done = install(home, "-C", str(directory), name)
    assert started(name, said(name, done.stdout)[OUTER[name]]["toolcell"])[1:] == [
        "-C",
        str(directory),
        "mcp",
    ]
    assert all(letter.isprintable() or letter == "\n" for letter in done.stdout)


STAND_IN = """#!{python}
# Stands in for a host's program: it says in its help what is asked for, notes its words, and changes the host's file.
import json, os, sys, time
words = sys.argv[1:]
with open(os.environ["HOME"] + "/asked", "a") as file:
    print(json.dumps([words, os.getcwd(), os.environ["PATH"]]), file=file)
if "--help" in words:
    print({help!r})
    sys.exit()
{does}
"""
ADD = {
    "claude": """
path = os.environ["HOME"] + "/.claude.json"
whole = json.load(open(path)) if os.path.exists(path) else {}
servers = whole.setdefault("mcpServers", {})
if words[1] == "add-json":
    if words[4] in servers:
        sys.exit(f"MCP server {words[4]} already exists in user config")
    servers[words[4]] = json.loads(words[5])
else:
    del servers[words[4]]
json.dump(whole, open(path, "w"))
""",
    "vscode": "",
}
HELP = {"claude": "claude mcp add-json", "vscode": "--add-mcp"}


def stand_in(
    home: Path, name: str, does: str | None = None, *, told: str | None = None, place: str = "bin"
) -> Path:
    """A program that stands in for a host's, and notes what it is asked for in `asked`."""
    own = HOSTS[name].own
    assert own is not None
    program = home / place / own.program
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(
        STAND_IN.replace("{python}", sys.executable)
        .replace("{help!r}", repr(HELP[name] if told is None else told))
        .replace("{does}", ADD[name] if does is None else does)
    )
    program.chmod(0o755)
    return program


def asked(home: Path) -> list[list[str]]:
    """What a program was asked for, but for its help."""
    lines = (home / "asked").read_text().splitlines() if (home / "asked").exists() else []
    return [words for words, *_ in map(json.loads, lines) if "--help" not in words]


def test_claudes_own_command_writes_replaces_and_takes_back(home: Path) -> None:
    stand_in(home, "claude")
    put(home, "claude", '{"numStartups": 1}')
    entry = json.loads(install(home, "claude").stdout)["mcpServers"]["toolcell"]
    done = install(home, "claude", "--write")
    assert (done.returncode, done.stdout) == (0, "Told Claude Code of toolcell, with claude mcp add-json.\n")
    assert json.loads((home / ".claude.json").read_text()) == {
        "numStartups": 1, "mcpServers": {"toolcell": entry}
    }  # fmt: skip
    assert install(home, "claude", "--write").stdout.endswith("has it already.\n")
    assert install(home, "-C", str(home), "claude", "--write", "--json").stdout.endswith(
        '"by": "claude mcp add-json"}\n'
    )
    done = install(home, "claude", "--remove")
    assert done.stdout == "Took toolcell out of Claude Code, with claude mcp remove.\n"
    assert json.loads((home / ".claude.json").read_text()) == {"numStartups": 1, "mcpServers": {}}
    verbs = [words[1] for words in asked(home)]
    assert verbs == ["add-json", "add-json", "remove", "add-json", "remove"]


TOML = ["codex", "vibe"]
TOML_OTHERS = """# mine
model = "a"

[{table}]  # the others
{name}command = "x"
args = [
  "y",
]
env = {{ A = "[b]" }}

# at the end"""


@pytest.mark.parametrize("name", TOML)
@pytest.mark.parametrize(
    "text", ["", "\n", 'model = "a"', 'model = "a"\n', 'model = "a"\n\n', "# only", "others"]
)
@pytest.mark.parametrize("crlf", [False, True])
def test_a_file_of_toml_is_edited_and_restored_byte_for_byte(
    home: Path, name: str, text: str, *, crlf: bool
) -> None:
    table, entry = ("[mcp_servers]", 'name = "other"\n') if name == "vibe" else ("mcp_servers.other", "")
    text = TOML_OTHERS.format(table=table, name=entry) if text == "others" else text
    text = text.replace("\n", "\r\n") if crlf else text
    path = put(home, name, text)
    done = install(home, name, "--write")
    again = f"Start {HOSTS[name].title} again."
    assert (done.returncode, done.stdout) == (0, f"Wrote toolcell into {path}. {again}\n")
    written = path.read_bytes().decode()
    assert written.startswith(text)
    assert "\r\n" not in text or written.count("\n") == written.count("\r\n")
    printed = said(name, install(home, name).stdout)["mcp_servers"]["toolcell"]
    assert said(name, written)["mcp_servers"]["toolcell"] == printed
    assert install(home, name, "--write").stdout.endswith("has it already.\n")
    assert install(home, name, "--remove").returncode == 0
    assert path.read_bytes().decode() == text


@pytest.mark.parametrize("name", TOML)
def test_an_entry_in_toml_is_replaced_and_taken_out_from_between_others(home: Path, name: str) -> None:
    path = put(home, name, "a = 1\n")
    assert install(home, "-C", str(home), name, "--write").returncode == 0
    head = "[[mcp_servers]]\nname = 'later'" if name == "vibe" else "[mcp_servers.later]"
    path.write_text(f"{path.read_text()}\n{head}\ncommand = 'x'\nargs = []\n")
    assert install(home, name, "--write").returncode == 0
    servers = said(name, path.read_text())["mcp_servers"]
    assert servers["toolcell"] == said(name, install(home, name).stdout)["mcp_servers"]["toolcell"]
    path.write_text(path.read_text() + "[tools]\nb = 2 # kept\n")
    assert install(home, name, "--remove").returncode == 0
    assert path.read_text() == f"a = 1\n\n{head}\ncommand = 'x'\nargs = []\n[tools]\nb = 2 # kept\n"


@pytest.mark.parametrize("text", ["mcp_servers = []\n", "a = 1\nmcp_servers = [] # none\n[b]\nc = []\n"])
def test_a_list_in_one_line_is_filled_and_emptied_in_its_line(home: Path, text: str) -> None:
    path = put(home, "vibe", text)
    assert install(home, "vibe", "--write").returncode == 0
    assert len(path.read_text().splitlines()) == len(text.splitlines())
    printed = said("vibe", install(home, "vibe").stdout)["mcp_servers"]
    assert said("vibe", path.read_text())["mcp_servers"] == printed
    assert install(home, "vibe", "--remove").returncode == 0
    assert path.read_text() == text


def test_what_codexs_own_command_has_written_is_ours(home: Path) -> None:
    program = Path(sys.executable).with_name("toolcell")
    entry = f'[mcp_servers.toolcell]\ncommand = "{program}"\nargs = ["mcp"]\n'
    more = '\n[mcp_servers.toolcell.env]\nXDG_RUNTIME_DIR = "/run/user/7"\n'
    path = put(home, "codex", entry + more)
    assert install(home, "codex", "--write").returncode == 0
    assert said("codex", path.read_text()) == said("codex", install(home, "codex").stdout)
    assert install(home, "codex", "--remove").returncode == 0
    assert path.read_text() == ""


@pytest.mark.parametrize("name", TOML)
@pytest.mark.parametrize(
    "text",
    [
        "a = 1\na = 2\n", "a = " + "[" * 5000, "\x00", "mcp_servers = 'x'\n", f"c = {'9' * 5000}",
        "mcp_servers = {}\n", "mcp_servers = [{name = 'a'}]\n", "[[mcp_servers.toolcell]]\n",
        "a = '''\n[mcp_servers.toolcell]\n", "# " + "x" * 1_100_000,
    ],
)  # fmt: skip
def test_a_file_that_is_no_toml_or_written_in_another_way_is_refused_with_the_text_to_paste(
    home: Path, name: str, text: str
) -> None:
    path = put(home, name, text)
    done = install(home, name, "--write")
    assert (done.returncode, done.stdout) == (2, "")
    assert said(name, pasted(done)) == said(name, install(home, name).stdout)
    assert path.read_text() == text


def test_vscodes_own_command_is_asked_to_write_and_its_file_is_edited_to_take_it_back(home: Path) -> None:
    stand_in(home, "vscode")
    done = install(home, "vscode", "--write")
    assert done.stdout == "Told Visual Studio Code of toolcell, with code --add-mcp.\n"
    assert not (home / FILES["vscode"]).exists()  # it may be elsewhere
    printed = json.loads(install(home, "vscode").stdout)["servers"]["toolcell"]
    (words,) = asked(home)
    assert (words[0], json.loads(words[1])) == ("--add-mcp", {"name": "toolcell", **printed})
    path = put(home, "vscode", json.dumps({"servers": {"toolcell": printed}}))
    assert install(home, "vscode", "--remove").stdout == f"Took toolcell out of {path}.\n"
    assert asked(home) == [words]


OWN = sorted(HELP)


@pytest.mark.parametrize("name", OWN)
def test_a_hosts_own_command_is_not_asked_where_the_entry_is_not_ours_or_a_projects(
    home: Path, name: str
) -> None:
    stand_in(home, name)
    put(home, name, json.dumps({OUTER[name]: {"toolcell": {"command": "theirs", "args": []}}}))
    for words in (["--write"], ["--remove"]):
        assert "another program" in install(home, name, *words).stderr
    install(home, name, "--project", "--write")
    install(home, name)
    assert asked(home) == []


FAULTS = {
    "fails": (
        "print('no such thing \\x1b[2J', file=sys.stderr); sys.exit(3)",
        "failed (3): no such thing \\x1b[2J",
    ),
    "is killed": ("os.kill(os.getpid(), 9)", "failed (-9)"),
    "hangs": ("time.sleep(600)", "did not end within 0.5 s"),
    "leaves a process that keeps its output": (
        "sys.stdout.flush(); os.fork() and sys.exit(1); time.sleep(600)",
        "failed (1)",
    ),
    "writes without end": ("while True: print('x' * 100_000)", "did not end within 0.5 s"),
    "has changed nothing": ("sys.exit(0)", "has not changed the file"),
    "is another program": (None, "has no"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_where_a_hosts_own_command_does_not_do_it_json_is_edited(
    home: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    does, why = FAULTS[fault]
    monkeypatch.setattr(own_command, "ASK_SECONDS", 0.5 if "0.5" in why else SECONDS_MAX)
    monkeypatch.setattr(own_command, "LEFT_SECONDS", 0.1)
    pids = home / "pids"
    noted = f"open({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
    stand_in(home, "claude", does and noted + does, told="Usage: nothing" if does is None else None)
    done = install(home, "claude", "--write")
    assert why in " ".join(done.stderr.split())
    assert (done.returncode, done.stdout.startswith("Wrote toolcell into")) == (0, True)
    assert json.loads((home / FILES["claude"]).read_text()) == json.loads(install(home, "claude").stdout)
    for pid in pids.read_text().split() if pids.exists() else ():
        assert not Path(f"/proc/{pid}").exists()


@pytest.mark.sampled("name")
@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("project", "{home}/project"),  # in which the command runs
        ("project/bin", "{home}/project/bin"),
        ("project/bin", "{home}/linked"),
        ("project/bin", "{home}/links"),
        ("project", "."),
        ("project", ""),
        ("project", ":"),
        ("clone/sub/bin", "{home}/clone/sub/bin"),
        ("tools/bin", "{home}/tools/bin"),
        ("x/node_modules/.bin", "{home}/x/node_modules/.bin"),
        ("open", "{home}/open"),
        ("open/to/all", "{home}/open/to/all"),
        ("real", "{home}/hops"),  # by a link that lies in the project
    ],
)
def test_a_program_that_a_project_or_another_user_can_have_put_there_is_not_run(
    home: Path, name: str, place: str, path: str
) -> None:
    program = stand_in(home, name, place=place)
    (home / "project").mkdir(exist_ok=True)
    (home / "clone" / ".git").mkdir(parents=True)
    (home / "tools" / ".toolcell").mkdir(parents=True)
    (home / "linked").symlink_to(home / "project" / "bin")
    (home / "links").mkdir()
    (home / "links" / program.name).symlink_to(program)
    (home / "hops").mkdir()
    (home / "hops" / program.name).symlink_to(home / "project" / "hop")
    (home / "project" / "hop").symlink_to(program)
    if place.startswith("open"):
        (home / "open").chmod(0o777)
    clean = dict.fromkeys(os.environ) | {"PATH": path.format(home=home), "HOME": str(home)}
    with contextlib.chdir(home / "project"):
        done = CliRunner().invoke(app, ["mcp", "install", name, "--write"], env=clean, prog_name="toolcell")
    assert not (home / "asked").exists()
    assert done.exit_code == 0
    if path.startswith("{home}") and "link" not in path and "hops" not in path:
        assert f"{program} is not run" in " ".join(done.stderr.split())


def test_a_hosts_program_runs_at_home_and_finds_no_program_of_a_project(home: Path) -> None:
    stand_in(home, "claude", place=".local/bin")
    for place in ("project/bin", "project/node_modules/.bin", ".nvm/bin"):
        (home / place).mkdir(parents=True)
    for clone in ("project", ".nvm"):
        (home / clone / ".git").mkdir()
    places = ["project/node_modules/.bin", "project/bin", ".local/bin", ".nvm/bin"]
    path = os.pathsep.join([*(str(home / place) for place in places), "bin", "/nowhere"])
    clean = dict.fromkeys(os.environ) | {"PATH": path, "HOME": str(home)}
    with contextlib.chdir(home / "project"):
        CliRunner().invoke(app, ["mcp", "install", "claude", "--write"], env=clean, prog_name="toolcell")
    (_, directory, searched), *_ = map(json.loads, (home / "asked").read_text().splitlines())
    assert directory == str(home)
    assert searched.split(os.pathsep) == [str(home / ".local/bin"), str(home / ".nvm/bin")]


def test_what_makes_no_sense_is_said(home: Path) -> None:
    os.mkdir(os.fsencode(home) + b"/\xff")
    assert "Take one of: claude, copilot" in install(home, "emacs").stderr
    assert "Goose has no file in a project" in install(home, "goose", "--project").stderr
    assert "--socket" in install(home, "cursor", "--project", "--socket", "x").stderr
    assert "UTF-8" in install(home, "-C", os.fsdecode(os.fsencode(home) + b"/\xff"), "cursor").stderr
    assert "opposites" in install(home, "claude", "--write", "--remove").stderr
    assert json.loads(install(home, "claude", "--json").stdout)["file"] == str(home / ".claude.json")
    assert json.loads(install(home, "claude", "--write", "--json").stdout)["changed"] is True


TOML_LINES = [
    "a = 1", "[b]", "[mcp_servers]", "[mcp_servers.x]", "[[mcp_servers]]", 'name = "x"', "args = [", '  "[y]"', "]",
    "# mcp", "", "mcp_servers = []", "mcp_servers = [{name = 'x'}]", "x = {a = 1}", "[mcp_servers.x.env]", "'''",
]  # fmt: skip


@given(
    st.lists(st.sampled_from(TOML_LINES), max_size=8),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["\n", ""]),
)
def test_a_server_goes_into_toml_and_out_without_a_trace(
    lines: list[str], crlf: bool, listed: bool, last: str
) -> None:
    text = ("\r\n" if crlf else "\n").join(lines) + last
    entry = {"name": "toolcell", "command": "é", "args": ["mcp"]}
    try:
        written = with_server(text, "mcp_servers", "toolcell", entry, listed=listed)
    except NotPlain:
        return
    servers: Any = tomllib.loads(written)["mcp_servers"]
    assert (servers[-1] if listed else servers["toolcell"]) == entry
    assert without_server(written, "mcp_servers", "toolcell") == text


# The place in the text

KEYS = st.text(max_size=4) | st.sampled_from(["mcp", "toolcell"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
FILES_OF_OTHERS = st.dictionaries(KEYS, VALUES, max_size=4)
INDENTS = st.none() | st.integers(0, 4) | st.just("\t")


def json_remarked(text: str) -> str:
    """JSON with a comment behind every comma, or bracket, at the end of a line, and commas behind last members."""
    ended = re.sub(r"([^\s{\[,:])(\r?\n\s*[}\]])", r"\1, /* last */\2", text)
    return "// first\n" + re.sub(r"([,{\[])(?=\r?\n)", r"\1 // '\"{[ here", ended)


@given(FILES_OF_OTHERS, INDENTS, st.booleans(), st.booleans())
def test_a_member_goes_in_and_out_without_a_trace(
    others: dict[str, Any], indent: int | str | None, windows: bool, remarked: bool
) -> None:
    text = json.dumps(others, indent=indent)
    text = text.replace("\n", "\r\n") if windows else text
    text = json_remarked(text) if remarked else text
    entry = {"command": "x", "args": ["é"]}
    inner = others.get("mcp", {})
    if not isinstance(inner, dict):
        with pytest.raises(NotPlain):
            with_member(text, "mcp", "toolcell", entry)
        return
    written = with_member(text, "mcp", "toolcell", entry)
    assert json.loads(plain(written)) == {**others, "mcp": {**inner, "toolcell": entry}}
    assert member(written, "mcp", "toolcell") == entry
    assert with_member(written, "mcp", "toolcell", entry) == written
    back = without_member(written, "mcp", "toolcell")
    rest = {key: value for key, value in inner.items() if key != "toolcell"}  # pyright: ignore[reportUnknownVariableType]
    if "toolcell" not in inner:
        assert back == text
    elif rest or remarked:
        assert json.loads(plain(back)) == {**others, "mcp": rest}
    else:
        assert json.loads(plain(back)) in [
            {**others, "mcp": {}},
            {k: v for k, v in others.items() if k != "mcp"},
        ]


@given(st.text(alphabet='{}[]",: \n\\a1-.eE/*', max_size=40))
def test_no_text_is_too_strange(text: str) -> None:
    try:
        written = with_member(text, "a", "b", {})
    except NotPlain:
        return
    assert json.loads(plain(written))["a"]["b"] == {}


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text",
    [
        '{"' + '\\"' * 200_000,
        "{" + "/* " * 200_000,
        "{" + ",".join(f'"{number}": 1' for number in range(50_000)) + "}",
        '{"a": {' + ",".join(f'"{number}": 1' for number in range(50_000)) + "}}",
    ],
    ids=["quotes", "comments", "members", "inner members"],
)
def test_a_file_of_a_stranger_is_read_in_time(text: str) -> None:
    """Each was read for minutes, as time grew with the square of its length; or ended in a traceback."""
    try:
        written = with_member(text, "a", "b", {"x": "y"})
    except NotPlain:
        return
    assert member(written, "a", "b") == {"x": "y"}


# The real programs, where they are installed

BUNDLED = Path(sys.prefix) / "lib/python{}.{}/site-packages/claude_agent_sdk/_bundled/claude".format(
    *sys.version_info
)
NODE_MODULES = Path(sys.prefix) / "node" / "node_modules"
REAL = {
    "claude": (BUNDLED, "toolcell: {} mcp - ✔ Connected"),
    "opencode": (NODE_MODULES / "opencode-linux-x64/bin/opencode", "✓ toolcell"),
    "copilot": (NODE_MODULES / "@github/copilot-linux-x64/copilot", "toolcell (local)"),
    "codex": (
        NODE_MODULES / "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
        "toolcell  {}  mcp",
    ),
}


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", REAL)
def test_the_real_program_reads_what_was_written(kit: RunningDaemon, home: Path, name: str) -> None:
    program, said = REAL[name]
    if not program.exists():
        pytest.skip("the agent's program is not installed: make test-agents does it")
    done = install(home, name, "--write", PATH=f"{program.parent}:{os.environ['PATH']}")
    assert (done.returncode, done.stdout.startswith("Told")) == (0, HOSTS[name].own is not None)
    done = subprocess.run(
        [str(program), "mcp", "list"],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "LC_ALL": "C.UTF-8",
            "NO_COLOR": "1",
            "TOOLCELL_SOCKET": kit.socket,
            "ANTHROPIC_API_KEY": "none",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "npm_config_registry": "http://127.0.0.1:9",
            "COPILOT_OFFLINE": "true",
            "COPILOT_PROVIDER_BASE_URL": "http://127.0.0.1:9",
        },
        cwd=kit.project,
        text=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=240,
        check=False,
    )
    plain = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    program_of_ours = os.path.join(os.path.dirname(sys.executable), "toolcell")
    assert said.format(program_of_ours) in plain, done
