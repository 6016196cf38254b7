"""What the certificate of a death says, by cause and evidence."""

from __future__ import annotations

import signal

import pytest

from toolcelld.cell.exit import CellExit
from toolcelld.cell.kernel_log import KernelKill
from toolcelld.pool.certificate import ABORT, CAUSES, certificate

OF_GROUP = KernelKill("Memory cgroup out of memory: Killed process 7, which had 65 MiB", host=False)
OF_HOST = KernelKill("Out of memory: Killed process 7, which had 65 MiB", host=True)


def ended(status: int | None = signal.SIGKILL, **facts: object) -> CellExit:
    values: dict[str, object] = {
        "cpu_seconds": 0.0,
        "memory_peak_bytes": 0,
        "killed": 0,
        "stderr": "",
        **facts,
    }
    return CellExit(status=status, proof="none", **values)  # type: ignore[arg-type]


@pytest.mark.parametrize("cause", [*CAUSES, "SIGSEGV", "exit 7", "signal 63"])
def test_every_cause_has_one_line_that_ends_with_what_would_change_it(cause: str) -> None:
    found = certificate(cause, "", ended())
    assert found.startswith(f"{cause}: ")
    assert found.isprintable()
    what, _, setting = found.removesuffix(".").partition(". ")
    assert what
    assert "`" in setting or setting.startswith("No setting changes this")


@pytest.mark.parametrize(
    ("cause", "exit_", "told"),
    [
        (
            "memory",
            ended(out_of_memory=True),
            "control group has it as out of memory; its process ended by SIGKILL",
        ),
        (ABORT, ended(), "3 s; its process ended by SIGKILL"),
        ("SIGKILL", ended(), "not by Toolcell; 3 s. No"),
        ("memory", ended(None), "memory; 3 s. The limit is `memory`"),
        (
            "memory",
            ended(None, kernel=OF_GROUP),
            "memory; 3 s; the kernel's log says 'Memory cgroup out of memory: K",
        ),
        (
            "SIGKILL",
            ended(kernel=OF_GROUP),
            "SIGKILL: a control group that its own is in was out of memory; 3 s; the kernel's log says 'Memory cgroup",
        ),
        (
            "SIGKILL",
            ended(kernel=OF_HOST),
            "MiB'. More memory of the host changes this, or less for each: `memory`",
        ),
    ],
)
def test_what_the_daemon_did_comes_before_the_exit_status(cause: str, exit_: CellExit, told: str) -> None:
    assert told in certificate(cause, "3 s", exit_)


def test_what_a_tool_printed_cannot_make_another_line() -> None:
    found = certificate("exit 7", "", ended(7 << 8, stderr="first\n\x1b[31m\u202e" + "W" * 10_000 + "\r\n\n"))
    assert found.isprintable()
    assert len(found) < 1000
    assert "its process ended" not in found
