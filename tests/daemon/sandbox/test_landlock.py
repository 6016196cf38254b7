"""What Landlock denies and permits a cell, tested on this kernel with the domain and without."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolcelld import linux
from toolcelld.sandbox import landlock
from toolcelld.sandbox.policy import SandboxPolicy
from toolcelld.sandbox.setup import own_places

from .conftest import Wrap
from .inside import Failed, in_child

ABI = linux.landlock_abi()
Work = Callable[[], Any]

pytestmark = pytest.mark.skipif(ABI == 0, reason="this kernel has no Landlock")


def confined(policy: SandboxPolicy, work: Work, scratch: str = "") -> Work:
    """Return `work` that runs in the domain of that policy, with capabilities, so that only Landlock denies."""

    def inside() -> Any:
        linux.no_new_privileges()
        landlock.enter(landlock.domain(policy, own_places(), scratch))
        return work()

    return inside


def of_project(place: Path, **changes: Any) -> SandboxPolicy:
    return SandboxPolicy("baseline", writable=(str(place / "project"),), **changes)


def error_of(work: Callable[[], object]) -> int:
    try:
        work()
    except OSError as error:
        return error.errno or 0
    return 0


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as name:
        name.bind(str(path))


def read_linked(place: Path) -> None:
    (place / "project/link").symlink_to(place / "home/secret")
    (place / "project/link").read_text()


def read_from_within(directory: Path) -> None:
    os.chdir(directory)
    Path("secret").read_text()


def run(path: Path) -> None:
    subprocess.run([path], check=True)


ATTACKS: dict[str, Callable[[Path], object]] = {
    "read": lambda place: (place / "home/secret").read_text(),
    "read through a link": read_linked,
    "read past the project": lambda place: (place / "project/../home/secret").read_text(),
    "read past /proc": lambda place: Path(f"/proc/self/root{place}/home/secret").read_text(),
    "read from within": lambda place: read_from_within(place / "home"),
    "list": lambda place: os.listdir(place / "home"),
    "append": lambda place: os.open(place / "home/secret", os.O_WRONLY | os.O_APPEND),
    "truncate": lambda place: os.truncate(place / "home/secret", 0),
    "create": lambda place: (place / "home/new").write_text(""),
    "make a directory": lambda place: (place / "home/new").mkdir(),
    "make a link": lambda place: (place / "home/new").symlink_to("secret"),
    "make a pipe": lambda place: os.mkfifo(place / "home/new"),
    "make a socket": lambda place: bind(place / "home/new"),
    "remove": lambda place: (place / "home/secret").unlink(),
    "take away": lambda place: (place / "home/secret").rename(place / "project/taken"),
    "bring": lambda place: (place / "project/.git/hooks/pre-commit").rename(place / "home/brought"),
    "link to": lambda place: (place / "project/hard").hardlink_to(place / "home/secret"),
    "run": lambda place: run(place / "program"),
    "see a command line": lambda _: Path(f"/proc/{os.getppid()}/cmdline").read_text(),
    "see variables": lambda _: Path(f"/proc/{os.getppid()}/environ").read_text(),
    "list processes": lambda _: os.listdir("/proc"),
    "signal": lambda _: os.kill(os.getppid(), 0),
}
NOT_BEFORE = {"truncate": landlock.ABI_TRUNCATE, "signal": linux.LANDLOCK_ABI_SIGNAL}
FOR_ROOT_ONLY = {"see variables", "signal"}
"""A child that changed its user to nobody has another user than its parent."""


@pytest.mark.parametrize("attack", ATTACKS)
def test_access_that_was_not_granted_is_denied(attack: str, place: Path, wrap: Wrap, request: Any) -> None:
    as_nobody = "as nobody" in request.node.name
    if as_nobody and attack in FOR_ROOT_ONLY:
        pytest.skip("what only the same user can do")
    program = place / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    confined_error = in_child(
        wrap(confined(of_project(place), lambda: error_of(lambda: ATTACKS[attack](place))))
    )
    kept = (place / "home/secret").read_text(), sorted(os.listdir(place / "home"))
    for left in ("link", "taken", "hard"):
        (place / "project" / left).unlink(missing_ok=True)
    if NOT_BEFORE.get(attack, 0) <= ABI:
        assert confined_error in (errno.EACCES, errno.EPERM, errno.EXDEV)
        assert kept == ("topsecret", ["secret"])
    assert in_child(wrap(lambda: error_of(lambda: ATTACKS[attack](place)))) == 0  # or it proves nothing


@pytest.mark.skipif(os.geteuid() != 0, reason="its mode denies it to other users")
@pytest.mark.parametrize("path", ["/etc/shadow", "/etc/gshadow"])
def test_root_without_capabilities_is_denied_what_file_modes_permit(path: str, place: Path) -> None:
    def look() -> tuple[int, bool]:
        linux.drop_capabilities()
        return error_of(Path(path).read_text), "root" in Path("/etc/passwd").read_text()

    assert in_child(look) == (0, True)
    assert in_child(confined(of_project(place), look)) == (errno.EACCES, True)


def test_access_that_was_granted_is_permitted(place: Path, wrap: Wrap) -> None:
    scratch = place / "scratch"
    scratch.mkdir()
    scratch.chmod(0o777)

    def work() -> list[object]:
        project = place / "project"
        (project / "a").write_text("a")
        (project / "a").rename(project / "src/a")
        os.link(project / "src/a", project / "src/b")
        os.truncate(project / "src/a", 0)
        (scratch / "c").write_text("c")
        (scratch / "c").rename(project / "c")
        (project / "script").write_text("#!/bin/sh\necho ran\n")
        (project / "script").chmod(0o755)
        Path("/dev/null").write_text("gone")
        return [
            (place / "readable").read_text(),
            error_of(lambda: (place / "readable").write_text("")),
            subprocess.check_output([project / "script"], text=True),
            len(Path("/dev/urandom").open("rb").read(4)),
            bool(Path("/proc/self/status").read_text()),
            bool(Path("/proc/meminfo").read_text()),
        ]

    granted = of_project(place, readable=(str(place / "readable"), str(place / "missing")))
    assert in_child(wrap(confined(granted, work, str(scratch)))) == [
        "granted", errno.EACCES, "ran\n", 4, True, True,
    ]  # fmt: skip


def test_of_control_groups_the_limits_of_its_own_are_readable_and_nothing_else(
    place: Path, wrap: Wrap
) -> None:
    limits = [path for path in landlock.limits_of_own_group() if os.access(path, os.R_OK)]
    if not limits:
        pytest.skip("no control group is mounted with its limits")

    def look() -> tuple[int, ...]:
        for path in limits:
            Path(path).read_bytes()
        members = f"{os.path.dirname(limits[0])}/cgroup.procs"
        return error_of(lambda: Path(members).read_bytes()), error_of(lambda: os.listdir(landlock.GROUPS))

    assert in_child(wrap(look)) == (0, 0)
    assert in_child(wrap(confined(of_project(place), look))) == (errno.EACCES, errno.EACCES)


def test_without_the_right_to_programs_none_starts(place: Path, wrap: Wrap) -> None:
    def start() -> int:
        return error_of(lambda: subprocess.run(["/bin/true"], check=True))

    assert in_child(wrap(confined(of_project(place), start))) == 0
    assert in_child(wrap(confined(of_project(place, execute=False), start))) == errno.EACCES


@pytest.mark.skipif(ABI < landlock.ABI_TCP, reason="since Linux 6.7")
def test_ports_are_refused_unless_the_network_is_granted(place: Path, wrap: Wrap) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()

        def reach() -> tuple[int, int]:
            return (
                error_of(lambda: socket.create_connection(address).close()),
                error_of(lambda: socket.create_server(("127.0.0.1", 0)).close()),
            )

        assert in_child(wrap(reach)) == (0, 0)
        assert in_child(wrap(confined(of_project(place), reach))) == (errno.EACCES, errno.EACCES)
        assert in_child(wrap(confined(of_project(place, network="open"), reach))) == (0, 0)


@pytest.mark.skipif(ABI < linux.LANDLOCK_ABI_SIGNAL, reason="since Linux 6.12")
def test_abstract_sockets_and_processes_outside_cannot_be_reached(place: Path, wrap: Wrap) -> None:
    name = f"\0toolcell-{os.getpid()}-{os.urandom(4).hex()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()

        def reach() -> int:
            with socket.socket(socket.AF_UNIX) as client:
                return error_of(lambda: client.connect(name))

        assert in_child(wrap(reach)) == 0
        assert in_child(wrap(confined(of_project(place), reach))) == errno.EPERM


def test_a_tool_may_kill_its_own_processes(place: Path, wrap: Wrap) -> None:
    def start_and_end() -> int:
        with subprocess.Popen(["/bin/sleep", "20"]) as child:
            child.send_signal(signal.SIGTERM)
            return child.wait()

    assert in_child(wrap(confined(of_project(place), start_and_end))) == -signal.SIGTERM


@pytest.mark.parametrize("path", ["/", "/sys", "/sys/fs/cgroup", "/proc", "/proc/self", "/dev", "link"])
def test_kernel_files_are_never_writable(path: str, place: Path) -> None:
    (place / "link").symlink_to("/sys/fs")
    policy = SandboxPolicy("baseline", writable=(str(place / path),))  # an absolute one stays what it is
    with pytest.raises(Failed, match=r"cannot be writable.*Name the directories"):
        in_child(confined(policy, lambda: None))


def test_the_system_rules_permit_writing_only_to_devices() -> None:
    for apart in (False, True):
        for rule in landlock.system_rules(execute=True, apart=apart):
            writes = rule.rights & (landlock.WRITE | landlock.MAKE_DEVICE)
            assert not writes or (rule.path.startswith("/dev/") and writes == landlock.WRITE_FILE)


@pytest.mark.parametrize(
    ("abi", "name"),
    [
        (1, "landlock 1: files; not truncation, tcp, devices, signals, abstract sockets"),
        (2, "landlock 2: files; not truncation, tcp, devices, signals, abstract sockets"),
        (3, "landlock 3: files, truncation; not tcp, devices, signals, abstract sockets"),
        (4, "landlock 4: files, truncation, tcp; not devices, signals, abstract sockets"),
        (5, "landlock 5: files, truncation, tcp, devices; not signals, abstract sockets"),
        (6, "landlock 6: files, truncation, tcp, devices, signals, abstract sockets"),
        (7, "landlock 7: files, truncation, tcp, devices, signals, abstract sockets"),
    ],
)
def test_an_older_kernel_applies_its_rights_and_reports_the_missing_ones(
    abi: int, name: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if abi > ABI:
        pytest.skip(f"this kernel has version {ABI}")
    monkeypatch.setattr(linux, "landlock_abi", lambda: abi)  # all that was told it is asked for, and no more

    def inside() -> tuple[str, int, int]:
        linux.no_new_privileges()
        layer = landlock.enter(landlock.domain(of_project(place), own_places(), ""))
        secret = place / "home/secret"
        return layer, error_of(secret.read_text), error_of(lambda: os.truncate(secret, 0))

    assert in_child(inside) == (name, errno.EACCES, errno.EACCES if abi >= landlock.ABI_TRUNCATE else 0)


def test_a_kernel_without_landlock_cannot_build_a_cell(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linux, "landlock_abi", lambda: 0)
    with pytest.raises(Failed, match="this kernel has no Landlock"):
        in_child(confined(of_project(place), lambda: None))
