"""The surroundings of one attack: a home with secrets, places to plant files, services, and a process as victim.

They are made for one test and removed after it. Whether an attack succeeded is seen from here, outside
of the cell: a changed file, a connection to a service, a secret in the tool's result.
Nothing that belongs to the machine is at risk: the secrets are random, the services are on loopback, and
the victim only sleeps.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import platform
import pty
import re
import secrets
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

from toolcell.client import Outcome

__all__ = ["KEPT", "Target"]

KEPT: Final = "kept\n"
"""The content of files that no attack may change."""
VICTIM_SECONDS: Final = 120
"""The victim exits by itself after this, also when the test is killed."""
WORK_SECONDS_MAX: Final = 15
"""More than an attack that goes on after its result works, and less than its alarm."""
LOOPBACK_BYTES: Final = 32 * 1024
"""More than the loopback of a new cell has received."""
IPC_RMID: Final = 0
SYSTEM_V: Final = ("shm", "sem", "msg")


class Target:
    """The surroundings of one attack, and what the attack has changed in them."""

    def __init__(self, directory: Path, daemon: Mapping[str, Any]) -> None:
        self.directory = directory
        self.secret = f"SECRET-{secrets.token_hex(12)}"
        self.tag = f"toolcell-{secrets.token_hex(4)}"
        """Part of every name that an attack may leave on the machine, to tell it from others."""
        self.key = 0x70000000 | secrets.randbits(24)  # of System V objects
        self.home = directory / "home"
        self.outside = directory / "outside"
        self.project = directory / "project"
        self.daemon = dict(daemon)
        self.returned = ""
        """All that the tool returned, or left in its own project for its author to fetch."""
        self.neighbour: dict[str, Any] = {}
        """The neighbour's process id and the place of its secret."""
        self.neighbour_result = ""
        self.seen = False
        """Whether the effect that can be seen only while the attack runs was seen."""
        self.catalog = ""
        """The project's catalog, read again after the attack."""
        self._services: dict[str, socket.socket] = {}
        self._ends = ExitStack()

    def __enter__(self) -> Self:
        self._make_files()
        self._open_services()
        self._loopback_before = _use_loopback()
        self.terminal, slave = pty.openpty()
        self._ends.callback(os.close, self.terminal)
        self._ends.callback(os.close, slave)
        self.terminal_name = os.ttyname(slave)
        sleeper = self.directory / f"sleep-{self.secret}"
        sleeper.symlink_to(shutil.which("sleep") or "/bin/sleep")
        # A cell cannot reach a process with root's capabilities, so the victim has none, like a cell.
        powerless = ("setpriv", "--bounding-set", "-all", "--inh-caps", "-all") if os.geteuid() == 0 else ()
        self.victim = subprocess.Popen(
            [*powerless, str(sleeper), str(VICTIM_SECONDS)],
            env={"TOKEN": self.secret},
            stdin=subprocess.DEVNULL,
        )
        self._ends.callback(self._end_victim)
        self.victim_before = self._victim_state()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._ends.close()
        finally:
            self.remove_leftovers()
            _writable_again(self.directory)
            shutil.rmtree(self.directory)

    def _make_files(self) -> None:
        for path, text in {
            self.home / ".ssh" / "id_ed25519": self.secret,
            self.home / ".aws" / "credentials": self.secret,
            self.home / ".bashrc": KEPT,
            self.home / "bin" / "program": f"#!/bin/sh\necho {self.secret} ran\n",
            self.outside / "kept": KEPT,
            self.outside / "secret": self.secret,
            self.outside / "tools" / "innocent.py": KEPT,
            self.project / "own": "mine\n",
            self.project / ".git" / "config": KEPT,
            self.project / ".git" / "hooks" / "pre-push": KEPT,
        }.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (self.home / "bin" / "program").chmod(0o755)
        (self.home / f"a-name-{self.secret}").touch()
        (self.project / ".toolcell" / "tools").mkdir(parents=True)

    def _open_services(self) -> None:
        stream, datagram = socket.SOCK_STREAM, socket.SOCK_DGRAM
        for name, family, kind, address in (
            ("tcp", socket.AF_INET, stream, ("127.0.0.1", 0)),
            ("tcp6", socket.AF_INET6, stream, ("::1", 0)),
            ("udp", socket.AF_INET, datagram, ("127.0.0.1", 0)),
            ("agent", socket.AF_UNIX, stream, str(self.outside / "agent")),
            ("log", socket.AF_UNIX, datagram, str(self.outside / "log")),
            ("abstract", socket.AF_UNIX, stream, f"\0{self.tag}"),
        ):
            service = self._ends.enter_context(socket.socket(family, kind))
            try:
                service.bind(address)
            except OSError:
                if name != "tcp6":  # a host without IPv6 has no such service
                    raise
                continue
            if kind == stream:
                service.listen()
            service.setblocking(False)
            self._services[name] = service

    def _end_victim(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.victim.send_signal(signal.SIGCONT)
        self.victim.kill()
        self.victim.wait()

    def known(self) -> dict[str, Any]:
        """What the attack is told: the place of everything but the secret."""
        ports = {
            f"{name}_port": service.getsockname()[1]
            for name, service in self._services.items()
            if service.family != socket.AF_UNIX
        }
        return {
            "home": str(self.home),
            "outside": str(self.outside),
            "project": str(self.project),
            "tag": self.tag,
            "key": self.key,
            "victim": self.victim.pid,
            "terminal": self.terminal_name,
            **self.daemon,
            **self.neighbour,
            **ports,
        }

    def keep(self, outcome: Outcome) -> None:
        """Keep what the tool returned, and what it left to be fetched."""
        self.returned = json.dumps(outcome.to_dict(), default=str)
        with contextlib.suppress(OSError):
            self.returned += (self.project / "loot").read_text(errors="replace")

    # Effects

    def has_secret(self, what: str = "") -> bool:
        """Whether the tool returned the secret, or `what`."""
        return (what or self.secret) in self.returned

    def reached(self, service: str) -> bool:
        """Whether the service received a connection or a datagram."""
        listener = self._services[service]
        with contextlib.suppress(BlockingIOError):
            if listener.type == socket.SOCK_STREAM:
                listener.accept()[0].close()
            else:
                listener.recv(100)
            return True
        return False

    def accepts_connection(self) -> bool:
        """Whether the attack's own service on the machine's loopback accepts a connection."""
        try:
            port = int((self.project / "port").read_text() or "0")
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            return False
        return True

    def locked(self) -> bool:
        """Whether the file outside is locked; tells the attack that this was seen."""
        with (self.outside / "kept").open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                (self.project / "seen").touch()
                return True
        return False

    def leased(self) -> bool:
        """Whether opening the file of the attack to write to it would wait; tells the attack that this was seen."""
        if not (self.project / "leased").exists():
            return False
        try:
            os.close(os.open(self._tools() / "lease_file.py", os.O_WRONLY | os.O_NONBLOCK))
        except BlockingIOError:
            (self.project / "seen").touch()
            return True
        return False

    def own_file_changed(self) -> bool:
        """Whether a tool file of the project was rewritten."""
        return any(
            path.read_text().endswith("# planted\n") for path in self._tools().glob("*.py") if path.is_file()
        )

    def _tools(self) -> Path:
        return self.project / ".toolcell" / "tools"

    def planted_beside(self, place: str) -> bool:
        """Whether the attack left a file beside the daemon's socket, or in its state."""
        path = Path(self.daemon[place])
        found = list((path if path.is_dir() else path.parent).glob(self.tag))
        for intruder in found:
            intruder.unlink()
        return bool(found)

    def found_in_scratch(self) -> bool:
        """Whether a file that the attack left in its temporary directory still exists."""
        places = (Path(tempfile.gettempdir()), Path("/tmp"), Path(self.daemon["daemon_state"]))
        found = {
            path
            for place in places
            for depth in ("", "*/", "*/*/")
            for path in place.glob(f"{depth}{self.tag}")
        }
        for path in found:
            path.unlink()
        return bool(found)

    def largest_file_bytes(self) -> int:
        """The size of the project's largest file."""
        return max(path.stat().st_size for path in self.project.iterdir())

    def knows_interfaces(self) -> bool:
        """Whether the tool returned the counter of the machine's loopback, not that of a loopback of its own."""
        found = re.search(r"\blo received (\d+) bytes", self.returned)
        return found is not None and self._loopback_before <= int(found[1]) <= _loopback_bytes()

    def has_daemon_secret(self) -> bool:
        """Whether the tool returned the secret in the daemon's environment."""
        return self.daemon["daemon_secret"] in self.returned

    def has_daemon_descriptors(self) -> bool:
        """Whether a file of the daemon is among the descriptors that the tool found."""
        return str(Path(self.daemon["daemon_state"]).parent) in self.returned.replace(str(self.directory), "")

    def daemon_memory_bytes(self) -> int:
        """The daemon's resident memory."""
        status = Path(f"/proc/{self.daemon['daemon']}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024

    def has_absurd_usage(self) -> bool:
        """Whether the facts of the call have a figure that no machine has."""
        return "1e+308" in self.returned or "0" * 20 in self.returned

    def in_keyring(self) -> bool:
        """Whether the user's keyring has a key of the attack; it is removed."""
        libc = ctypes.CDLL(None, use_errno=True)
        keyctl = 250 if platform.machine() == "x86_64" else 219
        search, unlink, user_keyring = 10, 9, ctypes.c_long(-4)
        name = self.tag.encode()
        key = libc.syscall(
            ctypes.c_long(keyctl), ctypes.c_long(search), user_keyring, b"user", name, ctypes.c_long(0)
        )
        if key > 0:
            libc.syscall(ctypes.c_long(keyctl), ctypes.c_long(unlink), ctypes.c_long(key), user_keyring)
        return int(key) > 0

    def typed(self) -> bool:
        """Whether something was typed into the user's terminal, or shown on it."""
        return bool(select.select([self.terminal], [], [], 0)[0])

    def victim_changed(self) -> bool:
        """Whether the victim has changed: limits, priority, processors, state, or dead."""
        return self.victim.poll() is not None or self._victim_state() != self.victim_before

    def _victim_state(self) -> tuple[object, ...]:
        pid = self.victim.pid
        limits = Path(f"/proc/{pid}/limits").read_text()
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        stopped = stat[0] in "Tt"
        return (limits, stopped, os.getpriority(os.PRIO_PROCESS, pid), os.sched_getscheduler(pid),
                frozenset(os.sched_getaffinity(pid)))  # fmt: skip

    def alive(self) -> list[int]:
        """Processes whose working directory is here; process ids of another namespace would mean nothing."""
        return [
            int(name)
            for name in os.listdir("/proc")
            if name.isdigit() and _works_in(int(name), str(self.directory))
        ]

    def worked_after_result(self) -> bool:
        """Wait until the attack has left its proof of work, or its processes have ended or are stopped."""
        deadline = time.monotonic() + WORK_SECONDS_MAX
        while not (self.project / "worked").exists():
            assert time.monotonic() < deadline, f"still at it: {self.alive()}"
            if all(_is_stopped(pid) for pid in self.alive()):
                return False
            time.sleep(0.02)  # it is another process that ends or is stopped
        return True

    def ended_before_its_work(self) -> bool:
        """Wait until the attack has left its proof of work, or its processes have ended."""
        deadline = time.monotonic() + WORK_SECONDS_MAX
        while (alive := self.alive()) and not (self.project / "worked").exists():
            assert time.monotonic() < deadline, f"still at it: {alive}"
            time.sleep(0.02)  # as above
        return not (self.project / "worked").exists()

    def system_v(self) -> list[str]:
        """Memory, semaphores and queues that carry this test's key."""
        return [f"{kind} {identifier}" for kind, identifier in self._system_v()]

    def _system_v(self) -> Iterator[tuple[str, int]]:
        for kind in SYSTEM_V:
            for line in Path(f"/proc/sysvipc/{kind}").read_text().splitlines()[1:]:
                key, identifier = line.split()[:2]
                if int(key) & 0xFFFFFFFF == self.key:
                    yield kind, int(identifier)

    def shared_memory(self) -> list[Path]:
        """Files in /dev/shm that carry this test's tag."""
        return list(Path("/dev/shm").glob(f"*{self.tag}*"))

    def groups(self) -> list[Path]:
        """Control groups that carry this test's tag."""
        return [Path(top, name) for top in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified") if os.path.isdir(top)
                for name in os.listdir(top) if self.tag in name]  # fmt: skip

    def queue(self) -> bool:
        """Whether a POSIX message queue carries this test's tag."""
        rt = ctypes.CDLL("librt.so.1", use_errno=True)
        descriptor: int = rt.mq_open(f"/{self.tag}".encode(), os.O_RDONLY)
        if descriptor >= 0:
            os.close(descriptor)
        return descriptor >= 0

    def mounts(self) -> list[str]:
        """Mounts of this machine at or below this test."""
        return [
            line
            for line in Path("/proc/self/mountinfo").read_text().splitlines()
            if str(self.directory) in line
        ]

    def leftovers(self) -> list[str]:
        """What this attack has left on the machine, outside of its own project."""
        left = [f"shared memory {path}" for path in self.shared_memory()]
        left += [f"System V {what}" for what in self.system_v()]
        left += [f"control group {path}" for path in self.groups()]
        left += [f"mount {line}" for line in self.mounts()]
        left += [f"process {pid}" for pid in self.alive()]
        left += [f"message queue {self.tag}"] if self.queue() else []
        return left

    def remove_leftovers(self) -> None:
        """Remove all of it."""
        libc, rt = ctypes.CDLL(None), ctypes.CDLL("librt.so.1")
        for path in self.shared_memory():
            path.unlink()
        for kind, identifier in self._system_v():
            libc[f"{kind}ctl"](identifier, *((0,) if kind == "sem" else ()), IPC_RMID, None)
        for path in self.groups():
            path.rmdir()
        rt.mq_unlink(f"/{self.tag}".encode())
        deadline = time.monotonic() + WORK_SECONDS_MAX
        while pids := self.alive():  # they may fork between the look and the signal
            assert time.monotonic() < deadline, pids
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)  # a killed process has its directory until it is gone


def _use_loopback() -> int:
    """Send a datagram through the machine's loopback; returns what the loopback has received."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as itself:
        itself.bind(("127.0.0.1", 0))
        itself.sendto(bytes(LOOPBACK_BYTES), itself.getsockname())
        itself.recv(LOOPBACK_BYTES)
    return _loopback_bytes()


def _loopback_bytes() -> int:
    """The bytes that the machine's loopback has received."""
    (line,) = (line for line in Path("/proc/self/net/dev").read_text().splitlines() if "lo:" in line.split())
    return int(line.split()[1])


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"T"
    except OSError:  # it has exited
        return True


def _works_in(pid: int, directory: str) -> bool:
    try:
        state = (
            Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
        )  # a name need not be text
        return state != b"Z" and os.readlink(f"/proc/{pid}/cwd").startswith(directory)
    except OSError:  # it has exited, or is another user's
        return False


def _writable_again(directory: Path) -> None:
    for top, names, _ in os.walk(directory):
        for name in [".", *names]:
            path = os.path.join(top, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700)
