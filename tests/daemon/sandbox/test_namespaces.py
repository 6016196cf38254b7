"""The file system and the namespaces of a strict cell: only granted paths, at their usual places."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolcelld.sandbox import namespaces
from toolcelld.sandbox.policy import SandboxPolicy

from .conftest import Wrap
from .inside import apart, in_child


def policy(place: Path, **changes: Any) -> SandboxPolicy:
    return SandboxPolicy(
        "strict",
        readable=(str(place / "readable"),),
        writable=(str(place / "project"),),
        protected=(str(place / "project/.git/hooks"),),
        **changes,
    )


def error_of(work: Callable[[], object]) -> int:
    try:
        work()
    except OSError as error:
        return error.errno or 0
    return 0


def test_only_granted_paths_exist(place: Path, wrap: Wrap) -> None:
    secret, readable = place / "home/secret", place / "readable"
    assert in_child(wrap(secret.read_text)) == "topsecret"  # without the view

    def look() -> tuple[int, str, list[str], int]:
        return (
            error_of(secret.read_text),
            readable.read_text(),
            sorted(os.listdir(place)),
            error_of(lambda: readable.write_text("x")),
        )

    assert in_child(wrap(apart(policy(place), look))) == (
        errno.ENOENT,
        "granted",
        ["project", "readable"],
        errno.EROFS,
    )


def test_the_project_is_writable_except_protected_paths(place: Path, wrap: Wrap) -> None:
    hook = place / "project/.git/hooks/pre-commit"
    assert in_child(wrap(lambda: hook.write_text("before"))) == len("before")

    def write() -> tuple[int, int, int]:
        return (
            (place / "project/src/new").write_text("hello"),
            error_of(lambda: hook.write_text("after")),
            error_of(lambda: os.rename(place / "project/.git/hooks", place / "project/.git/gone")),
        )

    assert in_child(wrap(apart(policy(place), write))) == (5, errno.EROFS, errno.EBUSY)
    assert (place / "project/src/new").read_text() == "hello"
    assert hook.read_text() == "before"


def test_metadata_of_files_outside_the_project_cannot_be_changed(place: Path, wrap: Wrap) -> None:
    target = place / "readable"

    def touch() -> list[int]:
        return [
            error_of(lambda: os.chmod(target, 0o600)),
            error_of(lambda: os.utime(target)),
            error_of(lambda: os.setxattr(target, "user.x", b"x")),
            error_of(lambda: os.link(target, place / "project/link")),
        ]

    assert 0 not in in_child(wrap(apart(policy(place), touch)))
    assert target.stat().st_mode & 0o777 == 0o777


def test_the_temporary_directory_is_private_and_limited(place: Path, wrap: Wrap) -> None:
    def fill() -> tuple[list[str], int]:
        before = os.listdir("/tmp")
        return before, error_of(lambda: Path("/tmp/large").write_bytes(bytes(2**21)))

    with tempfile.NamedTemporaryFile(dir="/tmp") as theirs:
        listed, error = in_child(wrap(apart(policy(place), fill, scratch_bytes=2**20)))
    assert os.path.basename(theirs.name) not in listed
    assert error == errno.ENOSPC
    assert not os.path.exists("/tmp/large")


def test_the_files_of_every_directory_in_memory_are_bounded(place: Path, wrap: Wrap) -> None:
    def make() -> tuple[int, int, list[tuple[int, int]]]:
        made = 0
        try:
            for made in range(5000):
                os.close(os.open(f"/tmp/{made}", os.O_CREAT | os.O_WRONLY))
        except OSError as error:
            others = [os.statvfs(path) for path in ("/run", "/home", "/mnt") if os.path.isdir(path)]
            return made, error.errno or 0, [(it.f_files, it.f_blocks * it.f_frsize) for it in others]
        return made, 0, []

    made, error, others = in_child(wrap(apart(policy(place), make, scratch_bytes=2**20)))
    assert (made < 1024, error) == (True, errno.ENOSPC)
    assert set(others) == {(4096, 2**20)}


@pytest.mark.slow
@pytest.mark.timeout(180)  # some 300 processes, each a copy of this one
def test_the_processes_of_a_cell_are_bounded_for_root_too(place: Path, wrap: Wrap) -> None:
    if not namespaces.bounds_processes():
        pytest.skip("the kernel bounds only those of the machine")
    machine = Path("/proc/sys/kernel/pid_max").read_text()

    def breed() -> int:
        children: list[int] = []
        try:
            while len(children) < 1000:
                if (child := os.fork()) == 0:
                    signal.alarm(20)
                    signal.pause()
                children.append(child)
        except OSError:
            pass
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        return len(children)

    assert in_child(wrap(apart(policy(place), breed, processes=10))) == 10 * namespaces.NUMBERS_PER_PROCESS
    assert Path("/proc/sys/kernel/pid_max").read_text() == machine


@pytest.mark.slow
@pytest.mark.parametrize(
    ("refused", "layer"),
    [(None, namespaces.BOUNDED), ("ns_last_pid", namespaces.BOUNDED_ROUGHLY), ("pid_max", None)],
)
def test_the_layer_says_how_far_the_processes_of_a_cell_are_bounded(
    place: Path, wrap: Wrap, monkeypatch: pytest.MonkeyPatch, refused: str | None, layer: str | None
) -> None:
    if not namespaces.bounds_processes():
        pytest.skip("the kernel bounds only those of the machine")
    write = namespaces._write  # pyright: ignore[reportPrivateUsage]  # this kernel has both settings, and writable

    def settings(path: str, text: bytes) -> None:
        if refused is not None and path.endswith(refused):
            raise OSError(errno.EROFS, "read-only", path)
        write(path, text)

    layers: list[str | None] = []
    bound = namespaces.bound_processes
    monkeypatch.setattr(namespaces, "_write", settings)

    def keep_layer(processes: int) -> None:
        layers.append(bound(processes))

    monkeypatch.setattr(namespaces, "bound_processes", keep_layer)
    assert in_child(wrap(apart(policy(place), lambda: layers, processes=10))) == [layer]


def test_shared_quotas_and_buffers_are_bounded(place: Path, wrap: Wrap) -> None:
    libc = ctypes.CDLL(None, use_errno=True)

    def take() -> tuple[int, str, int]:
        taken = 0
        while taken < 100 and libc.inotify_init1(0) >= 0:
            taken += 1
        raised = error_of(lambda: Path("/proc/sys/user/max_inotify_instances").write_text("1000"))
        return taken, Path("/proc/sys/net/ipv4/tcp_rmem").read_text(), raised

    taken, buffers, raised = in_child(wrap(apart(policy(place), take)))
    assert (taken, buffers.split()[2], raised != 0) == (32, "262144", True)
    assert "262144" not in Path("/proc/sys/net/ipv4/tcp_rmem").read_text().split()[2:]


def test_only_the_cell_is_in_its_process_list(place: Path, wrap: Wrap) -> None:
    def look() -> tuple[list[int], int]:
        return sorted(int(name) for name in os.listdir("/proc") if name.isdigit()), os.getpid()

    assert in_child(wrap(apart(policy(place), look))) == ([1, 2], 2)


def test_only_the_cells_own_network_is_available(place: Path, wrap: Wrap) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0toolcell-{os.getpid()}")
        abstract.listen()
        address, name = server.getsockname(), abstract.getsockname()

        def reach() -> list[int]:
            def own() -> None:
                with socket.create_server(("127.0.0.1", 0)) as mine:
                    socket.create_connection(mine.getsockname()).close()

            return [
                error_of(lambda: socket.create_connection(address).close()),
                error_of(lambda: socket.socket(socket.AF_UNIX).connect(name)),
                error_of(lambda: socket.create_connection(("192.0.2.1", 9), 1).close()),
                error_of(own),
            ]

        assert in_child(wrap(lambda: error_of(lambda: socket.create_connection(address).close()))) == 0
        assert in_child(wrap(apart(policy(place), reach))) == [
            errno.ECONNREFUSED,
            errno.ECONNREFUSED,
            errno.ENETUNREACH,
            0,
        ]


def test_no_capability_is_left_and_no_other_namespace_can_be_entered(place: Path, wrap: Wrap) -> None:
    def look() -> str:
        return next(
            line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff")
        )

    assert in_child(wrap(apart(policy(place), look))).split() == ["CapEff:", "0000000000000000"]


def test_a_hidden_directory_is_empty_except_granted_paths_below_it(place: Path, wrap: Wrap) -> None:
    git, config = place / "project/.git", place / "project/config"
    config.write_text("topsecret")
    (git / "key").write_text("topsecret")
    hidden = policy(place, hidden=(str(git), str(config)))

    def look() -> tuple[list[str], list[str], str]:
        return sorted(os.listdir(git)), sorted(os.listdir(git / "hooks")), config.read_text()

    assert in_child(wrap(apart(hidden, look))) == (["hooks"], ["pre-commit"], "")
