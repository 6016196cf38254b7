"""The configuration files: what they say is read, and what is wrong in them is named."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell._units import parse_bytes, parse_seconds, show_bytes, show_seconds
from toolcelld.config import load as configuration
from toolcelld.config.load import Config, load
from toolcelld.config.mistakes import MISTAKES_SHOWN_MAX, ConfigError

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(text: str | bytes, name: str = "config.toml") -> str:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return written


@pytest.fixture(autouse=True)
def no_chosen_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLCELL_CONFIG", raising=False)


def mistake(path: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load([path])
    said = re.match(rf"{re.escape(path)}(?::\d+)?: ", str(caught.value))
    assert said
    return str(caught.value)[said.end() :]


def test_the_example_of_the_documentation_is_read(write: Write) -> None:
    config = load(
        [
            write("""
        [daemon]
        workers = 32
        calls_per_session = 4
        worker_idle = "1m"
        abort_grace = "500ms"
        open_wait = "100ms"
        load_timeout = "1m"
        linger = 0
        [defaults]
        timeout = "2m"
        memory = "256MiB"
        cpu = 90
        idle = "off"
        isolation = "call"
        output = "tail"
        env = ["PATH", "LC_*"]
        [max]
        timeout = "1h"
        memory = "off"
        [spill]
        bytes_per_call = "64MiB"
        quota = "1GiB"
        retention = "7d"
        [source.project]
        python = ".venv/bin/python"
        [source.team]
        directory = "~/work/team-tools"
        programs = ["/usr/local/bin"]
        env = ["TEAM_URL"]
        [tool.issues]
        env = ["GH_HOST"]
        enabled = false
        [tool."git_*"]
        timeout = "30s"
        read_only = true
        """)
        ]
    )
    assert (config.daemon.workers, config.daemon.calls_per_session) == (32, 4)
    assert (config.daemon.worker_idle_seconds, config.daemon.abort_grace_seconds) == (60.0, 0.5)
    assert (config.daemon.open_wait_seconds, config.daemon.load_timeout_seconds) == (0.1, 60.0)
    assert config.daemon.linger_seconds == 0
    assert (config.defaults.timeout_seconds, config.defaults.memory_bytes) == (120.0, 256 * 2**20)
    assert (config.defaults.cpu_seconds, config.defaults.idle_seconds) == (90.0, None)
    assert (config.defaults.isolation, config.defaults.output, config.defaults.env) == (
        "call",
        "tail",
        ("PATH", "LC_*"),
    )
    assert (config.max.timeout_seconds, config.max.memory_bytes) == (3600.0, None)
    assert config.spill.bytes_per_call == 64 * 2**20
    assert config.spill.retention_seconds == 7 * 86_400
    assert config.sources["project"].python == ".venv/bin/python"
    assert config.sources["team"].directory == os.path.expanduser("~/work/team-tools")
    assert config.sources["team"].env == ("TEAM_URL",)
    assert [name for name, _ in config.rules] == ["issues", "git_*"]
    assert config.rules[0][1].enabled is False


def test_the_defaults_are_those_of_the_documentation() -> None:
    config = Config()
    assert (config.daemon.workers, config.daemon.calls_per_session) == (64, 8)
    assert (config.defaults.timeout_seconds, config.defaults.queue_seconds) == (120, 30)
    assert (config.defaults.cpu_seconds, config.defaults.idle_seconds) == (None, None)
    assert (config.defaults.memory_bytes, config.defaults.file_size_bytes) == (512 * 2**20, 2**30)
    assert (config.defaults.processes, config.defaults.open_files) == (64, 1024)
    assert (config.defaults.output_lines, config.defaults.output_bytes) == (2000, 50_000)


def test_the_later_file_lies_on_top_key_by_key(write: Write) -> None:
    lower = write(
        '[defaults]\ntimeout = 10\nmemory = "1GiB"\n[source.team]\ndirectory = "/team"\nenv = ["A"]\n',
        "a.toml",
    )
    upper = write('[defaults]\nmemory = "off"\n[source.team]\nenv = ["B"]\n', "b.toml")
    config = load([lower, upper])
    assert config.files == (lower, upper)
    assert (config.defaults.timeout_seconds, config.defaults.memory_bytes) == (10, None)
    assert (config.sources["team"].directory, config.sources["team"].env) == ("/team", ("B",))


def test_a_pattern_of_the_later_file_comes_after_every_pattern_of_the_earlier(write: Write) -> None:
    lower = write('[tool."git_*"]\ntimeout = 1\n[tool."*"]\ntimeout = 2\n', "a.toml")
    upper = write('[tool."git_*"]\nmemory = "1GiB"\n[tool.git_log]\n', "b.toml")
    assert [name for name, _ in load([lower, upper]).rules_for("git_log")] == [
        "git_*",
        "*",
        "git_*",
        "git_log",
    ]


def test_a_file_that_is_not_there_is_passed_over(tmp_path: Path) -> None:
    assert load([str(tmp_path / "none.toml"), str(tmp_path / "none" / "none.toml")]) == Config()


def test_a_named_file_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "none.toml")
    with pytest.raises(
        ConfigError, match=r"none\.toml: cannot be read: No such file or directory; create it"
    ):
        load([path], required=True)
    monkeypatch.setenv("TOOLCELL_CONFIG", path)
    with pytest.raises(ConfigError, match=r"none\.toml: cannot be read"):
        load()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[defaults]\ntimeot = 3", 'defaults.timeot: unknown key; did you mean "timeout"?'),
        ("[default]\ntimeout = 3", 'default: unknown key; did you mean "defaults"?'),
        ("[max]\nworker_idle = 3", "max.worker_idle: unknown key here; it belongs in [daemon]"),
        ("workers = 3", "workers: unknown key here; it belongs in [daemon]"),
        (
            "[defaults]\nsandbox = 'stric'",
            'defaults.sandbox: "stric" there is no [profile.stric]; did you mean "strict"?',
        ),
        ("[defaults]\nsandbox = 3", 'defaults.sandbox: 3 should be "auto", "strict", "baseline", "none" or'),
        ("trust = 'most'", "trust: \"most\" should be 'confined', 'ask' or 'all'"),
        ("trsut = 'all'", 'trsut: unknown key; did you mean "trust"?'),
        (
            "[tool.x]\nnetwork = ['https://api.example.org:8080/v1']",
            (
                "tool.x.network: ['https://api.example.org:8080/v1'] "
                'has an address, "https://api.example.org:8080/v1"; write its host alone: "api.example.org:8080"'
            ),
        ),
        ("[tool.x]\nnetwork = 'all'", 'tool.x.network: "all" should be a list of host names, true for all'),
        (
            "[tool.x]\nnetwork = ['a b']",
            "tool.x.network: ['a b'] should be a list of host names, and \"a b\" is none",
        ),
        ("[tool.x]\nsecrets = ['TOKEN']", 'tool.x.secrets: "TOKEN" is not in [secrets]; say there where'),
        (
            "[profile.strict]\nbase = 'none'",
            "profile.strict.base: \"none\" should be 'auto', 'strict' or 'baseline'",
        ),
        ("[profile.strict]\nbase = 'auto'", "profile.strict: is no name for a profile"),
        (
            "[profile.mine]\nreadable = ['data']",
            'profile.mine.readable: "data" should be an absolute path; begin it with',
        ),
        (
            "[secrets.T]\nenv = 'T'\nfile = '/t'",
            'secrets.T: should say one place: command = ["…"], file = "/…"',
        ),
        ("[secrets]\nT = { }", 'secrets.T: should say one place: command = ["…"], file = "/…" or env = "…"'),
        ("[secrets]\nT = 'hunter2'", 'secrets.T: should say one place: command = ["…"], file = "/…" or env'),
        ("[secrets]\n'A-B' = { env = 'T' }", "secrets.A-B: is no name for a secret"),
        (
            "[defaults]\nmemory = '5 apples'",
            'defaults.memory: "5 apples" is no size; write bytes, or "64KiB", "512MiB", "1GiB"',
        ),
        ("[max]\ntimeout = -1", "max.timeout: -1 is no duration between 0 and 366 days; write seconds, or"),
        ("[max]\ntimeout = nan", "max.timeout: nan is no duration between 0 and 366 days; write seconds, or"),
        ("[max]\ntimeout = 0", 'max.timeout: 0 is nothing at all; write "off" for no limit'),
        ("[max]\ntimeout = true", "max.timeout: True is no duration"),
        ("[max]\ntimeout = 1979-05-27", "max.timeout: datetime.date(1979, 5, 27) is no duration"),
        (
            "[max]\nprocesses = '3'",
            'max.processes: "3" should be a whole number from 1; write it without quotes',
        ),
        (
            "[max]\nmemory = 99999999999999999999",
            "max.memory: 99999999999999999999 is no size between 0 and 1 EiB",
        ),
        ("[daemon]\nlinger = '2h'", 'daemon.linger: "2h" is longer than an hour; write "1h" or less'),
        ("[defaults]\noutput = 'top'", "defaults.output: \"top\" should be 'head', 'tail' or 'middle'"),
        (
            "[defaults]\nenv = 'PATH'",
            'defaults.env: "PATH" should be a list of names of environment variables; write ["…", "…"]',
        ),
        (
            "[defaults]\nenv = ['A=1']",
            "defaults.env: ['A=1'] should be a list of names of environment variables, and \"A=1\" is none",
        ),
        ("[tool.x]\nenabled = 'no'", 'tool.x.enabled: "no" should be a valid boolean'),
        ("[tool]\nx = 3", "tool.x: 3 should be a table; write [tool.x] and its keys below"),
        ("defaults = 3", "defaults: 3 should be a table; write [defaults] and its keys below"),
        ("source = 3", "source: 3 should be a table; write [source] and its keys below"),
        ("[tool.'a b']", 'tool."a b": fits no tool; a name is of letters'),
        ("[source.local]\ndirectory = '/x'", "source.local: cannot be a source's name"),
        ("[source.project]\ndirectory = '/x'", 'source.project.directory: "/x" is built in for project'),
        (
            "[source.team]\ndirectory = 'x'",
            'source.team.directory: "x" should be an absolute path; begin it with "/" or "~/"',
        ),
        ("[source.team]", 'source.team: has no directory; add directory = "/…"'),
        (
            "[source.projcet]",
            'source.projcet: has no directory; add directory = "/…"; did you mean "project"?',
        ),
        (
            "[source.team]\ndirectory = '/x'\nprograms = [3]",
            "source.team.programs: [3] should be a list of directories",
        ),
        ('[source.team]\ndirectory = "/x"\npython = "\\u0000"', 'source.team.python: "\ufffd" is no path'),
    ],
)
def test_a_mistake_names_file_key_value_and_remedy(write: Write, text: str, message: str) -> None:
    assert mistake(write(text)).startswith(message)


def test_every_mistake_of_a_file_is_named_up_to_a_bound(write: Write) -> None:
    assert mistake(write("[max]\ncpu = -1\nidle = -1")).count("\n") == 1
    many = mistake(write("[max]\n" + "\n".join(f"x{n} = 1" for n in range(20))))
    assert many.count("\n") == MISTAKES_SHOWN_MAX
    assert many.endswith("and 10 more")


def test_a_syntax_error_names_its_line(write: Write) -> None:
    assert "line 2" in mistake(write("[defaults]\ntimeout =\n"))


def test_a_file_that_is_no_text_names_its_line(write: Write) -> None:
    assert mistake(write(b"[max]\n\xff")) == "is not UTF-8 in line 2; save it as UTF-8 text"


def test_a_huge_file_is_refused_before_it_is_parsed(write: Write) -> None:
    assert mistake(write("#" * (configuration.FILE_BYTES_MAX + 1))).startswith("is larger than 256 KiB")


def test_deep_nesting_is_refused(write: Write) -> None:
    assert "is n" in mistake(write("x = " + "[" * 100_000))
    assert "unknown key" in mistake(write("a" + ".a" * 60 + " = 1"))


def test_a_number_of_thousands_of_digits_is_refused(write: Write) -> None:
    assert mistake(write(f"x = {'9' * 5000}")) == "has a number of too many digits"


def test_a_fifo_and_a_directory_are_refused_without_waiting(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    os.mkfifo(tmp_path / "fifo")
    request.addfinalizer((tmp_path / "fifo").unlink)
    assert (
        mistake(str(tmp_path / "fifo")) == "is a FIFO, not a file; put the configuration there or remove it"
    )
    assert mistake(str(tmp_path)).startswith("is a directory, not a file")


def test_a_message_shows_no_control_characters(write: Write) -> None:
    assert "\x1b" not in mistake(write('[defaults]\n"\\u001b[31m" = 1\noutput = "\\u001b[2J"'))


@given(st.floats(min_value=0.001, max_value=1e6) | st.none())
def test_a_shown_duration_can_be_written_back(seconds: float | None) -> None:
    shown = show_seconds(seconds)
    assert shown == "off" if seconds is None else parse_seconds(shown) == pytest.approx(seconds, rel=1e-9)


@given(st.integers(min_value=1, max_value=2**60))
def test_a_shown_size_can_be_written_back(size: int) -> None:
    shown = show_bytes(size)
    assert parse_bytes(shown) == size


@given(st.text(max_size=30) | st.integers() | st.floats() | st.lists(st.integers()) | st.none())
def test_a_quantity_is_read_or_refused(value: object) -> None:
    for parse in (parse_seconds, parse_bytes):
        with contextlib.suppress(ValueError):
            assert parse(value) >= 0


def test_a_value_that_stands_where_its_place_should_is_never_repeated(write: Write) -> None:
    for text in (
        "[secrets]\nT = 'hunter2'",
        "[secrets]\nT = { env = ['hunter2'] }",
        "[secrets.T]\nvalue = 'hunter2'",
    ):
        assert "hunter2" not in mistake(write(text))


def test_profiles_are_laid_on_each_other_and_secrets_replace_each_other(write: Write) -> None:
    lower = write(
        "[profile.p]\nreadable = ['/a']\nprograms = false\n[secrets]\nT = { file = '/t' }\n", "a.toml"
    )
    upper = write("trust = 'ask'\n[profile.p]\nreadable = ['/b']\n[secrets]\nT = { env = 'T' }\n", "b.toml")
    config = load([lower, upper])
    assert (config.profiles["p"].readable, config.profiles["p"].programs) == (("/b",), False)
    assert (config.secrets["T"].file, config.secrets["T"].env) == (None, "T")
    assert config.trust == "ask"


def test_an_empty_list_of_hosts_is_no_network(write: Write) -> None:
    assert dict(load([write("[tool.x]\nnetwork = []")]).rules)["x"].network is False
