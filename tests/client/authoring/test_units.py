"""Sizes and durations mean the same wherever they are written, and read the same wherever they are shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import typer

from toolcell._arguments.parameters import InvalidToolDefinition
from toolcell._authoring.options import checked
from toolcell._authoring.tool import Limits
from toolcell._units import format_bytes, format_seconds, optional, parse_bytes, parse_seconds
from toolcell.cli._command_line.app import app
from toolcell.client.limits import encode_limits
from toolcelld.config.load import load
from toolcelld.config.mistakes import ConfigError
from toolcelld.config.resolution.declaration import DeclarationError, declare
from toolcelld.program import _parser  # pyright: ignore[reportPrivateUsage]  # the options of the program

SIZES: list[tuple[object, int | None]] = [
    (1_048_576, 1_048_576), ("1048576", 1_048_576), ("10MB", 10_000_000), ("10MiB", 10_485_760), ("10 MiB", 10_485_760),
    ("1.5 GiB", 1_610_612_736), ("64kB", 64_000), ("64KB", 64_000), ("64KiB", 65_536), ("5B", 5), ("off", None),
]  # fmt: skip
DURATIONS: list[tuple[object, float | None]] = [
    (90, 90), (0.5, 0.5), ("90", 90), ("500ms", 0.5), ("1.5s", 1.5), ("90 s", 90), ("2m", 120), ("1h", 3600), ("7d", 604_800),
    ("off", None),
]  # fmt: skip
NO_SIZES = ["", "5 apples", "10Mb", "10mb", "12bit", "3e2", "-1", "1,5MiB", "5K", "MiB", "0", "2000000TiB"]
NO_DURATIONS = ["", "5 apples", "2M", "-1s", "1:30", "nan", "367d", "0"]


def in_the_configuration(directory: Path, key: str, value: object) -> Any:
    written = f'"{value}"' if isinstance(value, str) else value
    path = directory / "config.toml"
    path.write_text(f"[defaults]\n{key} = {written}\n")
    return load([str(path)]).defaults


def in_the_decorator(key: str, value: object) -> Any:
    return declare(checked({key: value}))


def in_the_limits_of_a_call(key: str, value: object) -> Any:
    return encode_limits(cast("Limits", {key: value}))


def on_the_command_line(text: str) -> float | None:
    command = typer.main.get_command(app)
    call = cast("Any", command).commands["call"]
    context = call.make_context("call", ["tool", "--timeout", text], resilient_parsing=False)
    return cast("float | None", context.params["timeout"])


@pytest.mark.parametrize(("value", "size"), SIZES)
def test_a_size_is_the_same_everywhere(value: object, size: int | None, tmp_path: Path) -> None:
    assert optional(parse_bytes)(value) == size
    assert in_the_configuration(tmp_path, "memory", value).memory_bytes == size
    assert in_the_decorator("memory", value).memory_bytes == size
    sent = in_the_limits_of_a_call("memory", value)
    assert (sent.memory_bytes if sent.HasField("memory_bytes") else None) == size


@pytest.mark.parametrize(("value", "seconds"), DURATIONS)
def test_a_duration_is_the_same_everywhere(value: object, seconds: float | None, tmp_path: Path) -> None:
    assert optional(parse_seconds)(value) == seconds
    assert in_the_configuration(tmp_path, "timeout", value).timeout_seconds == seconds
    assert declare({"timeout": value}).timeout_seconds == seconds
    sent = in_the_limits_of_a_call("timeout", value)
    assert (sent.timeout_seconds if sent.HasField("timeout_seconds") else None) == seconds
    assert on_the_command_line(str(value)) == seconds
    if seconds is not None:
        assert _parser().parse_args(["--drain", str(value), "--idle-exit", str(value)]).drain == seconds


@pytest.mark.parametrize("value", NO_SIZES)
def test_what_is_no_size_is_refused_everywhere(value: str, tmp_path: Path) -> None:
    for refused, read in [
        (ConfigError, lambda: in_the_configuration(tmp_path, "memory", value)),
        (InvalidToolDefinition, lambda: in_the_decorator("memory", value)),
        (DeclarationError, lambda: declare({"memory": value})),
        (ValueError, lambda: in_the_limits_of_a_call("memory", value)),
    ]:
        with pytest.raises(cast("type[Exception]", refused)):
            cast("Callable[[], object]", read)()


@pytest.mark.parametrize("value", NO_DURATIONS)
def test_what_is_no_duration_is_refused_everywhere(value: str, tmp_path: Path) -> None:
    for refused, read in [
        (ConfigError, lambda: in_the_configuration(tmp_path, "timeout", value)),
        (DeclarationError, lambda: declare({"timeout": value})),
        (ValueError, lambda: in_the_limits_of_a_call("timeout", value)),
        (typer.BadParameter, lambda: on_the_command_line(value)),
    ]:
        with pytest.raises(cast("type[Exception]", refused)):
            cast("Callable[[], object]", read)()


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"), (999, "999 bytes"), (1023, "1023 bytes"), (1024, "1 KiB"), (1442, "1.41 KiB"), (1_399_999, "1.34 MiB"),
        (27_800_000, "27 MiB"), (512 * 2**20, "512 MiB"), (1030 * 2**20, "1.01 GiB"), (2**20 - 1, "1 MiB"), (2**50, "1024 TiB"),
    ],
)  # fmt: skip
def test_a_size_for_people(count: int, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0 ms"), (0.0042, "4 ms"), (1.42, "1.4 s"), (42, "42 s"), (300, "5 min"), (5000, "1 h"), (200_000, "2 days")],
)  # fmt: skip
def test_a_duration_for_people(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
