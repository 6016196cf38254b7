"""`toolcell mcp install`: what it prints, what it writes into other programs' files, and what it leaves alone."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.daemons import RunningDaemon

from toolcell.cli._mcp_install.hosts import HOSTS
from toolcell.cli._mcp_install.json_edit import NotPlain, member, with_member, without_member

SECONDS_MAX = 30
FILES = {
    "claude": ".claude.json",
    "copilot": ".copilot/mcp-config.json",
    "opencode": ".config/opencode/opencode.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".config/Code/User/mcp.json",
}
OUTER = {
    "claude": "mcpServers",
    "copilot": "mcpServers",
    "opencode": "mcp",
    "cursor": "mcpServers",
    "vscode": "servers",
}


def install(home: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "toolcell.cli", "mcp", "install", *words],
        env={"PATH": os.environ["PATH"], "HOME": str(home), **environment},
        cwd=home,
        text=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SECONDS_MAX,
        check=False,
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home directory of its own."""
    home = tmp_path / "home"
    home.mkdir()
    return home


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
    said = json.loads(done.stdout)
    assert list(said) == [OUTER[host]]
    entry = said[OUTER[host]]["toolcell"]
    command = entry["command"] if host == "opencode" else [entry["command"], *entry["args"]]
    assert os.path.isabs(command[0])
    assert os.access(command[0], os.X_OK)
    assert command[1:] == ["mcp"]
    assert str(home / FILES[host]) in done.stderr
    assert list(home.iterdir()) == []


def test_what_is_written_is_what_is_printed_and_is_taken_back(home: Path, host: str) -> None:
    printed = json.loads(install(home, host).stdout)
    path = home / FILES[host]

    done = install(home, host, "--write")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(path.read_text()) == printed
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    before = path.stat()
    again = install(home, host, "--write")
    assert again.returncode == 0
    assert "already" in again.stdout
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)

    assert install(home, host, "--remove").returncode == 0
    assert json.loads(path.read_text()) == {OUTER[host]: {}}
    done = install(home, host, "--remove")
    assert (done.returncode, done.stdout) == (0, f"{path} has no toolcell.\n")
    assert everything(home) == [FILES[host]]


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


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_everything_else_stays_byte_for_byte(home: Path, host: str, mode: int) -> None:
    others = OTHERS % OUTER[host]
    path = put(home, host, others)
    path.chmod(mode)

    assert install(home, host, "--write").returncode == 0
    written = path.read_text()
    assert json.loads(written)[OUTER[host]]["other"] == {"command": "x", "args": []}
    head, tail = others.split('"args": [ ] }')
    assert written.startswith(head)
    assert written.endswith(tail)
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
    assert json.loads(path.read_text()) == json.loads(install(home, host).stdout)


def changed(host: str, printed: dict[str, Any]) -> dict[str, Any]:
    printed[OUTER[host]]["toolcell"]["env"] = {"A": "b"}
    return printed


@pytest.mark.parametrize("what", ["changed", "foreign", "no object"])
@pytest.mark.parametrize("option", ["--write", "--remove"])
def test_an_entry_that_is_not_ours_stays(home: Path, host: str, what: str, option: str) -> None:
    printed = json.loads(install(home, host).stdout)
    theirs = {
        "changed": changed(host, printed),
        "foreign": {OUTER[host]: {"toolcell": {"command": "theirs", "args": ["mcp"]}}},
        "no object": {OUTER[host]: {"toolcell": "mcp"}},
    }[what]
    path = put(home, host, json.dumps(theirs))
    done = install(home, host, option)
    assert done.returncode == 2
    assert "stays as it is" in done.stderr
    assert path.read_text() == json.dumps(theirs)


@pytest.mark.parametrize(
    "text",
    [
        '{\n  // my servers\n  "mcpServers": {}\n}',
        '{ "mcpServers": { "a": 1, } }',
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


def test_opencodes_file_with_comments_is_not_passed_by(home: Path) -> None:
    path = home / ".config/opencode/opencode.jsonc"
    path.parent.mkdir(parents=True)
    path.write_text("{} // mine")
    done = install(home, "opencode", "--write")
    assert done.returncode == 2
    assert str(path) in done.stderr
    path.write_text("{}")
    assert install(home, "opencode", "--write").returncode == 0
    assert everything(home) == [".config/opencode/opencode.jsonc"]


def test_what_makes_no_sense_is_said(home: Path) -> None:
    assert "I know claude, copilot" in install(home, "emacs").stderr
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


@given(FILES_OF_OTHERS, INDENTS, st.booleans())
def test_a_member_goes_in_and_out_without_a_trace(
    others: dict[str, Any], indent: int | str | None, windows: bool
) -> None:
    text = json.dumps(others, indent=indent)
    text = text.replace("\n", "\r\n") if windows else text
    entry = {"command": "x", "args": ["é"]}
    inner = others.get("mcp", {})
    if not isinstance(inner, dict):
        with pytest.raises(NotPlain):
            with_member(text, "mcp", "toolcell", entry)
        return
    written = with_member(text, "mcp", "toolcell", entry)
    assert json.loads(written) == {**others, "mcp": {**inner, "toolcell": entry}}
    assert member(written, "mcp", "toolcell") == entry
    assert with_member(written, "mcp", "toolcell", entry) == written
    back = without_member(written, "mcp", "toolcell")
    rest = {key: value for key, value in inner.items() if key != "toolcell"}  # pyright: ignore[reportUnknownVariableType]
    assert json.loads(back) == {**others, "mcp": rest}
    if rest and "toolcell" not in inner:
        assert back == text


@given(st.text(alphabet='{}[]",: \n\\a1-.eE/*', max_size=40))
def test_no_text_is_too_strange(text: str) -> None:
    try:
        written = with_member(text, "a", "b", {})
    except NotPlain:
        return
    assert json.loads(written)["a"]["b"] == {}


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
