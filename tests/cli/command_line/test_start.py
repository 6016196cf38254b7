"""What a command loads before it does anything: its start is most of its time, so libraries are loaded by need."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata

import pytest

from toolcell._version import VERSION

HEAVY = {"asyncio", "email", "grpc", "importlib.metadata", "pydantic", "pydantic_core", "rich", "toolcelld"}


@pytest.mark.parametrize(
    "words", [["--help"], ["call", "--help"], ["tools", "--help"], ["version"]], ids=" ".join
)
def test_a_command_that_only_prints_loads_no_large_library(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "toolcell.cli", *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    loaded = set(re.findall(r"^import time:.*\| +(\S+)$", done.stderr, re.MULTILINE))
    assert {"toolcell", "typer"} <= loaded
    assert loaded & HEAVY == set()


def test_the_version_is_that_of_the_distribution() -> None:
    assert metadata.version("toolcell") == VERSION
