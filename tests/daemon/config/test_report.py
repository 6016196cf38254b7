"""What is told of a configuration that no daemon runs with."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from toolcelld.config.load import load
from toolcelld.config.report import report


def written(directory: Path, name: str, text: str) -> str:
    path = directory / name
    path.write_text(text)
    return str(path)


def values(found: dict[str, Any]) -> dict[str, tuple[str, str, int | None]]:
    return {it["key"]: (it["value"], Path(it["origin"]).name, it["line"]) for it in found["values"]}


def test_every_value_has_its_origin(tmp_path: Path) -> None:
    lower = written(
        tmp_path,
        "lower.toml",
        "[daemon]\nworkers = 5\nsessions = 9\n[tool.a]\ntimeout = 4\n[permissions]\n'b*' = 'ask'\n",
    )
    upper = written(tmp_path, "upper.toml", "\n[daemon]\nworkers = 6\n[secrets]\nT = {env = 'X'}\n")
    found = values(report([lower, upper]))
    assert found["daemon.workers"] == ("6", "upper.toml", 3)
    assert found["daemon.sessions"] == ("9", "lower.toml", 3)
    assert found["tool.a.timeout"] == ('"4s"', "lower.toml", 5)
    assert found['permissions."b*"'] == ('"ask"', "lower.toml", 7)
    assert found["secrets.T.env"] == ('"X"', "upper.toml", 5)
    assert found["defaults.memory"] == ('"512MiB"', "default", None)
    assert found["trust"] == ('"confined"', "default", None)
    assert "daemon.retained_bytes" not in found  # by the name that a file has


def test_what_is_shown_is_a_configuration_with_the_same_meaning(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "a.toml",
        '[defaults]\ncpu = "90s"\nidle = "off"\noutput_bytes = 3\n[daemon]\nlinger = 0.5\n',
    )
    lines: dict[str, list[str]] = {}
    for value in report([path])["values"]:
        table, _, key = value["key"].rpartition(".")
        lines.setdefault(table, []).append(f"{key} = {value['value']}")
    text = "\n".join(
        lines.pop("", []) + [line for table, keys in lines.items() for line in (f"[{table}]", *keys)]
    )
    again = load([written(tmp_path, "again.toml", text)])
    first = load([path])
    assert tomllib.loads(text)["defaults"]["idle"] == "off"
    assert (again.defaults, again.daemon, again.max, again.trust) == (
        first.defaults,
        first.daemon,
        first.max,
        first.trust,
    )


@pytest.mark.parametrize(
    ("text", "key", "says"),
    [
        ("[source.team]\ndirectory = '/nowhere'", "source.team.directory", "none of its tools are found"),
        ("[source.team]\ndirectory = '/'\npython = '/no/python'", "source.team.python", "is not there"),
        ("[secrets]\nT = { file = '/no/file' }", "secrets.T.file", "tools that need T are refused"),
        ("[secrets]\nT = { env = 'NOT_SET_HERE' }", "secrets.T.env", "is not set here"),
        ("[defaults]\ntimeout = '2h'", "defaults.timeout", "more than [max] timeout"),
        (
            "[defaults]\nmemory = '1GiB'\n[max]\nmemory = '512MiB'",
            "defaults.memory",
            "more than [max] memory",
        ),
    ],
)
def test_what_is_allowed_and_probably_not_meant_is_noted(
    tmp_path: Path, text: str, key: str, says: str
) -> None:
    found = report([written(tmp_path, "a.toml", text)])
    assert found["mistakes"] == []
    (note,) = found["notes"]
    assert note["key"] == key
    assert says in note["text"]


def test_a_mistake_has_its_line_and_no_value_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, "a.toml", "[secrets]\nTOKEN = 's3cr3t'\n[daemon]\nworkrs = 1\n")
    found = report([path])
    assert found["values"] == found["notes"] == []
    first, second = found["mistakes"]
    assert first.startswith(f"{path}:4: daemon.workrs: unknown key")
    assert second.startswith(f"{path}:2: secrets.TOKEN: should say one place")
    assert "s3cr3t" not in json.dumps(found)


def test_it_is_one_object_of_a_process(tmp_path: Path) -> None:
    line = [sys.executable, "-P", "-m", "toolcelld.config.report", written(tmp_path, "a.toml", "")]
    done = subprocess.run(line, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout)["mistakes"] == []
