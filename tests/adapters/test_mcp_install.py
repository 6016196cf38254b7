"""`toolcell mcp install`: what it prints, what it writes into other programs' files, and what it leaves alone."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.daemons import RunningDaemon
from typer.testing import CliRunner

from toolcell.cli._command_line.app import app
from toolcell.cli.adapters.mcp_install import json_edit, toml_edit, yaml_edit
from toolcell.cli.adapters.mcp_install.editing import Editor, NotPlain
from toolcell.cli.adapters.mcp_install.hosts import HOSTS
from toolcell.cli.adapters.mcp_install.json_edit import member, plain, with_member, without_member

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
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "windsurf": ".codeium/windsurf/mcp_config.json",
    "zed": ".config/zed/settings.json",
    "goose": ".config/goose/config.yaml",
}
OUTER = {
    "claude": "mcpServers",
    "copilot": "mcpServers",
    "opencode": "mcp",
    "cursor": "mcpServers",
    "vscode": "servers",
    "codex": "mcp_servers",
    "gemini": "mcpServers",
    "claude-desktop": "mcpServers",
    "windsurf": "mcpServers",
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
    "zed": ".zed/settings.json",
}
WORKSPACE = {"TOOLCELL_DIRECTORY": "${workspaceFolder}"}


def install(home: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
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
        case "goose":
            return yaml.safe_load(text)
        case _:
            return json.loads(plain(text))


def started(host: str, entry: dict[str, Any]) -> list[str]:
    """The command of an entry."""
    match host:
        case "opencode":
            return list(entry["command"])
        case "goose":
            return [entry["cmd"], *entry["args"]]
        case _:
            return [entry["command"], *entry["args"]]


@pytest.fixture(params=HOSTS)
def host(request: pytest.FixtureRequest) -> str:
    """Each host."""
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
    assert said(host, path.read_text()) == (None if host == "goose" else {})
    done = install(home, host, "--remove")
    assert (done.returncode, done.stdout) == (0, f"{path} has no toolcell.\n")
    assert everything(home) == [FILES[host]]


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
TABLES = """# mine
model = "x" # y

[%s.other]
command = 'x'
args = [ ]

[tui]
theme = '''
[%s.toolcell]
'''
"""
LINES = """# mine
GOOSE_PROVIDER: "x"   # y
%s:
    other:
        cmd: 'x'
        args:
        - "a: b"

    # the next
    more: {enabled: true}
# the end
list:
- a
"""


@pytest.mark.parametrize("mode", [0o600, 0o640])
@pytest.mark.parametrize("kind", ["plain", "with comments"])
def test_everything_else_stays_byte_for_byte(home: Path, host: str, mode: int, kind: str) -> None:
    texts = {"codex": TABLES, "goose": LINES}
    others = texts.get(host, OTHERS if kind == "plain" else COMMENTED).replace("%s", OUTER[host])
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
    assert path.read_text() == others
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert everything(home) == [FILES[host]]


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
    match host:
        case "codex":
            return text + 'enabled_tools = ["a"]\n'
        case "goose":
            return text + '    env_keys: ["TOKEN"]\n'
        case _:
            written = json.loads(text)
            written[OUTER[host]]["toolcell"]["env"] = {"A": "b"}
            return json.dumps(written)


FOREIGN = {
    "codex": "[mcp_servers.toolcell]\ncommand = 'theirs'\nargs = ['mcp']\n",
    "goose": "extensions:\n  toolcell:\n    cmd: theirs\n    args: [mcp]\n",
}
NO_ENTRY = {"codex": "[mcp_servers]\ntoolcell = 'mcp'\n", "goose": "extensions:\n  toolcell: mcp\n"}


@pytest.mark.parametrize("what", ["changed", "foreign", "no object"])
@pytest.mark.parametrize("option", ["--write", "--remove"])
def test_an_entry_that_is_not_ours_stays(home: Path, host: str, what: str, option: str) -> None:
    outer = OUTER[host]
    theirs = {
        "changed": changed(host, install(home, host).stdout),
        "foreign": FOREIGN.get(
            host, json.dumps({outer: {"toolcell": {"command": "theirs", "args": ["mcp"]}}})
        ),
        "no object": NO_ENTRY.get(host, json.dumps({outer: {"toolcell": "mcp"}})),
    }[what]
    path = put(home, host, theirs)
    done = install(home, host, option)
    assert done.returncode == 2
    assert "stays as it is" in done.stderr
    assert path.read_text() == theirs


def test_an_entry_that_goose_wrote_anew_is_still_ours(home: Path) -> None:
    assert install(home, "goose", "--write").returncode == 0
    path = home / FILES["goose"]
    written = yaml.safe_load(path.read_text())
    written["extensions"]["toolcell"].update(
        envs={}, env_keys=[], description="", bundled=None, available_tools=[]
    )
    path.write_text(yaml.safe_dump(written))
    assert install(home, "goose", "--remove").returncode == 0
    assert path.read_text() == ""


@pytest.mark.parametrize(
    "others", ['{\n  "a": 1\n}\n', '{"a": [1, {"b": 2}]}', '// mine\n{\n  // kept\n  "a": 1,\n}\n']
)
@pytest.mark.parametrize("name", ["cursor", "vscode", "claude", "zed"])
def test_a_host_keeps_no_key_that_was_not_there_before(home: Path, name: str, others: str) -> None:
    path = put(home, name, others)
    assert install(home, name, "--write").returncode == 0
    assert install(home, name, "--remove").returncode == 0
    assert plain(path.read_text()).split() == plain(others).split()


@pytest.mark.parametrize("others", ["", "theme: dark\n", "# mine\n", "a: 1\n\nb:\n  c: 2\n"])
def test_goose_keeps_no_key_that_was_not_there_before(home: Path, others: str) -> None:
    path = put(home, "goose", others)
    assert install(home, "goose", "--write").returncode == 0
    assert install(home, "goose", "--remove").returncode == 0
    assert path.read_text() == others


@pytest.mark.parametrize("why", ["read-only", "hard link"])
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


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("codex", "mcp_servers = { a = { command = 'x' } }\n"),
        ("codex", "mcp_servers = 'x'\n"),
        ("codex", "[[mcp_servers]]\na = 1\n"),
        ("codex", "a = 1\na = 2\n"),
        ("codex", "a = " + "[" * 5000),
        ("codex", "\x00"),
        ("goose", "extensions: {a: {cmd: x}}\n"),
        ("goose", "extensions:\n- a\n"),
        ("goose", "extensions: &all\n  a: 1\n"),
        ("goose", "extensions:\n  a: 1\nextensions:\n  b: 1\n"),
        ("goose", "extensions:\n  toolcell:\n    cmd: x\n  toolcell:\n    cmd: y\n"),
        ("goose", "extensions:\n  a: 1\n b: 2\n"),
        ("goose", "extensions:\n\ta: 1\n"),
        ("goose", "a: 1\n---\nextensions: {}\n"),
        ("goose", "{extensions: {}}\n"),
        ("goose", "'extensions': {}\n"),
        ("goose", "\x00"),
    ],
)
def test_a_file_of_another_shape_is_refused_with_the_text_to_paste(home: Path, host: str, text: str) -> None:
    path = put(home, host, text)
    done = install(home, host, "--write")
    assert (done.returncode, done.stdout) == (2, "")
    assert "stays as it is" in done.stderr
    assert "Traceback" not in done.stderr
    _, pasted = done.stderr.split("put this into it.\n")
    assert said(host, textwrap.dedent(pasted)) == said(host, install(home, host).stdout)
    assert path.read_text() == text


def test_bytes_that_are_no_text_are_refused(home: Path) -> None:
    path = home / ".claude.json"
    path.write_bytes(b'{"a": "\xff"}')
    assert install(home, "claude", "--write").returncode == 2
    assert path.read_bytes() == b'{"a": "\xff"}'


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


CODE = """#!{python}
import os, sys
with open(os.path.join(os.environ["HOME"], "asked"), "a") as file:
    print(*sys.argv[1:], file=file)
if sys.argv[1:] == ["--help"]:
    print({said!r})
else:
    sys.exit({status})
"""


def fake_code(home: Path, *, said: str = "  --add-mcp <json>  Adds a server", status: int | str = 0) -> Path:
    """A program that says that it is `code`, and notes what it is asked for."""
    code = home / "bin" / "code"
    code.parent.mkdir()
    code.write_text(CODE.format(python=sys.executable, said=said, status=status))
    code.chmod(0o755)
    return code


def test_vscodes_own_command_is_asked_to_write_where_it_is_there(home: Path) -> None:
    code = fake_code(home)
    done = install(home, "vscode", "--write")
    assert (done.returncode, done.stdout) == (
        0,
        f"Told Visual Studio Code of toolcell, with {code} --add-mcp.\n",
    )
    assert not (home / FILES["vscode"]).exists()
    asked = (home / "asked").read_text().splitlines()
    option, _, text = asked.pop().partition(" ")
    assert (asked, option) == (["--help"], "--add-mcp")
    added = json.loads(text)
    printed = json.loads(install(home, "vscode").stdout)["servers"]["toolcell"]
    assert added == {"name": "toolcell", **printed}
    assert json.loads(install(home, "vscode", "--write", "--json").stdout)["by"] == f"{code} --add-mcp"


def test_vscodes_own_command_is_not_asked_where_the_entry_is_there_or_is_not_ours(home: Path) -> None:
    entry = json.loads(install(home, "vscode").stdout)["servers"]["toolcell"]
    fake_code(home)
    put(home, "vscode", json.dumps({"servers": {"toolcell": entry}}))
    assert install(home, "vscode", "--write").stdout.endswith("has it already.\n")
    put(home, "vscode", json.dumps({"servers": {"toolcell": {"command": "theirs", "args": []}}}))
    assert "another program" in install(home, "vscode", "--write").stderr
    for words in (
        ["vscode"],
        ["vscode", "--remove"],
        ["vscode", "--project", "--write"],
        ["cursor", "--write"],
    ):
        install(home, *words)
    assert set((home / "asked").read_text().splitlines()) == {"--help"}


@pytest.mark.parametrize(
    "other", [{"said": "Usage: another program"}, {"status": 1}, {"status": "os.kill(os.getpid(), 9)"}]
)
def test_where_vscodes_command_does_not_write_its_file_is_edited(home: Path, other: dict[str, Any]) -> None:
    fake_code(home, **other)
    done = install(home, "vscode", "--write")
    assert (done.returncode, done.stdout.startswith("Wrote toolcell into")) == (0, True)
    assert "toolcell" in json.loads((home / FILES["vscode"]).read_text())["servers"]


@pytest.mark.parametrize("path", [None, "", ".", "bin", ":"])
def test_a_code_of_the_directory_that_one_is_in_is_not_run(home: Path, path: str | None) -> None:
    code = fake_code(home)
    code.rename(home / "code")
    (home / "bin" / "code").symlink_to(home / "code")
    clean = {"PATH": path} if path is not None else {"PATH": "/nowhere"}
    assert install(home, "vscode", "--write", **clean).stdout.startswith("Wrote toolcell into")
    assert not (home / "asked").exists()


def test_what_makes_no_sense_is_said(home: Path) -> None:
    os.mkdir(os.fsencode(home) + b"/\xff")
    assert "Take one of: claude, copilot" in install(home, "emacs").stderr
    assert "Goose has no file in a project" in install(home, "goose", "--project").stderr
    assert "--socket" in install(home, "cursor", "--project", "--socket", "x").stderr
    assert "UTF-8" in install(home, "-C", os.fsdecode(os.fsencode(home) + b"/\xff"), "cursor").stderr
    assert "opposites" in install(home, "claude", "--write", "--remove").stderr
    assert json.loads(install(home, "claude", "--json").stdout)["file"] == str(home / ".claude.json")
    assert json.loads(install(home, "claude", "--write", "--json").stdout)["changed"] is True


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
    without = {key: value for key, value in others.items() if key != "mcp"}
    left: list[dict[str, Any]] = (
        [{**others, "mcp": rest}] if rest or remarked else []
    )  # a remark in it keeps it
    assert json.loads(plain(back)) in [*left, *([] if rest else [without])]
    if rest and "toolcell" not in inner:
        assert back == text


@pytest.mark.parametrize(
    "text",
    [
        'text: "one\na:\n  two: three"\n',
        "text: 'one\na:\n  two: it''s three'\n",
        'a:\n  one: "two\n  b: three"\n',
        "text: {one: two,\na: {}\n }\n",
        "- 'one\na:\n  two'\n",
        "a:\n  b: &anchor\n    x: 1\n  c: *anchor\n",
    ],
)
def test_a_value_of_several_lines_is_not_taken_for_keys(text: str) -> None:
    """Lines of a text look as the place of the entry does, and another value may be a name for it."""
    try:
        found = yaml_edit.member(text, "a", "b")
        assert isinstance(found, str), "so that it is kept as another program's"
    except NotPlain:
        pass
    else:
        return
    with pytest.raises(NotPlain):
        yaml_edit.with_member(text, "a", "b", {"x": "y"})


@pytest.mark.parametrize(
    "text", ["a: 'it''s'  # \"one\nb: 1\n", 'a: "one \\" two" # \'\nb: {c: [1]}\n', "a: [1, 2]\n"]
)
def test_a_value_of_one_line_is_no_obstacle(text: str) -> None:
    written = yaml_edit.with_member(text, "outer", "b", {"x": "y"})
    assert yaml.safe_load(written) == {**yaml.safe_load(text), "outer": {"b": {"x": "y"}}}


@given(st.text(alphabet='{}[]",: \n\\a1-.eE/*', max_size=40))
def test_no_text_is_too_strange(text: str) -> None:
    try:
        written = with_member(text, "a", "b", {})
    except NotPlain:
        return
    assert json.loads(plain(written))["a"]["b"] == {}


@given(st.text(alphabet="abx:-[]{}#\"' \n\t=.&*|", max_size=40), st.sampled_from([toml_edit, yaml_edit]))
def test_no_lines_are_too_strange(text: str, editor: Editor) -> None:
    try:
        written = editor.with_member(text, "a", "b", {"x": "y", "list": ["mcp"], "flag": True})
    except NotPlain:
        return
    read: Any = tomllib.loads if editor is toml_edit else yaml.safe_load
    try:
        before: dict[str, Any] = read(text) or {}
    except Exception:  # noqa: BLE001  it was none of its format before, and programs that read it say so
        return
    after: dict[str, Any] = read(written)
    assert after["a"]["b"] == {"x": "y", "list": ["mcp"], "flag": True}
    assert {key: value for key, value in after.items() if key != "a"} == {
        key: value for key, value in before.items() if key != "a"
    }
    back: dict[str, Any] = read(editor.without_member(written, "a", "b")) or {}
    inner: dict[str, Any] = before.get("a") or {}
    assert back.get("a") in ({key: value for key, value in inner.items() if key != "b"}, None)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("editor", "text"),
    [
        (json_edit, '{"' + '\\"' * 200_000),
        (json_edit, "{" + "/* " * 200_000),
        (json_edit, "{" + ",".join(f'"{number}": 1' for number in range(50_000)) + "}"),
        (json_edit, '{"a": {' + ",".join(f'"{number}": 1' for number in range(50_000)) + "}}"),
        (toml_edit, 'a = {b = {x = 1}}\nc = """\n' + "[a.b]\n" * 20_000 + '"""\n'),
        (toml_edit, f"c = {'9' * 5000}"),
        (yaml_edit, "# remark\n" * 20_000 + "c: 1\n"),
    ],
    ids=["quotes", "comments", "members", "inner members", "heads", "digits", "remarks"],
)
def test_a_file_of_a_stranger_is_read_in_time(editor: Editor, text: str) -> None:
    """Each was read for minutes, as time grew with the square of its length; or ended in a traceback."""
    try:
        written = editor.with_member(text, "a", "b", {"x": "y"})
    except NotPlain:
        return
    assert editor.member(written, "a", "b") == {"x": "y"}


# The real programs, where they are installed

BUNDLED = Path(sys.prefix) / "lib/python{}.{}/site-packages/claude_agent_sdk/_bundled/claude".format(
    *sys.version_info
)
NODE_MODULES = Path(sys.prefix) / "node" / "node_modules"
REAL = {
    "claude": (BUNDLED, "toolcell: {} mcp - ✔ Connected"),
    "opencode": (NODE_MODULES / "opencode-linux-x64/bin/opencode", "✓ toolcell"),
    "copilot": (NODE_MODULES / "@github/copilot-linux-x64/copilot", "toolcell (local)"),
}


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", REAL)
def test_the_real_program_reads_what_was_written(kit: RunningDaemon, home: Path, name: str) -> None:
    program, said = REAL[name]
    if not program.exists():
        pytest.skip("the agent's program is not installed: make test-agents does it")
    assert install(home, name, "--write").returncode == 0
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
