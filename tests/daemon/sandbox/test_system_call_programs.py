"""The programs of the system-call filter, run by a BPF interpreter: their result for any call, on both processors."""

from __future__ import annotations

import errno
import itertools
import json
import os
import socket
import stat
import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcelld.catalog.discovery.sources import ToolFile
from toolcelld.inspector.__main__ import CALLS
from toolcelld.linux import SYS_SECCOMP
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.sandbox.guard.process import CALLS as CALLS_OF_A_GUARD
from toolcelld.sandbox.guard.questions import ASKED as ASKED_CALLS
from toolcelld.sandbox.policy import CellLimits, SandboxPolicy
from toolcelld.sandbox.setup import CellSetup
from toolcelld.sandbox.system_calls import sole_exec
from toolcelld.sandbox.system_calls.denied_syscalls import Filter, filter_of, refusals
from toolcelld.sandbox.system_calls.seccomp import only, program
from toolcelld.sandbox.system_calls.syscalls import NEWEST, NUMBERS

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
FOREIGN = [0x40000003, 0x40000028, 0, 0xFFFFFFFF]  # i386, 32-bit ARM, and nonsense
MACHINES = sorted(NUMBERS)
STRICTEST = Filter(network=False, programs=False, memory_files=False, apart=False, listen=False)
LOOSEST = Filter(network=True, programs=True, memory_files=True, apart=True)
FILTERS = [Filter(*choices) for choices in itertools.product((False, True), repeat=4)]
CREATE = os.O_CREAT | os.O_WRONLY
SET_UID = stat.S_ISUID | 0o755
HIGH_HALF = 1 << 40
"""A bit that the kernel ignores, in arguments of 32 bits."""
KILLED = "killed"
ASKED = "asked"
ORDINARY = {
    "x86_64": {"read": 0, "close": 3, "mmap": 9, "fork": 57, "wait4": 61, "getpid": 39, "futex": 202, "openat": 257},
    "aarch64": {"read": 63, "close": 57, "mmap": 222, "wait4": 260, "getpid": 172, "futex": 98, "openat": 56},
}  # fmt: skip


def judge(
    code: bytes, machine: str, number: int, arguments: Sequence[int] = (), architecture: int = 0
) -> object:
    """Return the program's result: the errno, 0 for a permitted call, `KILLED` or `ASKED`."""
    words = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<IIQ6Q", number, architecture or ARCHITECTURES[machine], 0, *words)
    instructions = list(struct.iter_unpack("=HBBI", code))
    accumulator = position = 0
    while True:  # it ends: every jump is forward
        operation, if_so, if_not, constant = instructions[position]
        position += 1
        match operation:
            case 0x20:
                assert constant % 4 == 0
                accumulator = struct.unpack_from("<I", data, constant)[0]
            case 0x54:
                accumulator &= constant
            case 0x05:
                position += constant
            case 0x15:
                position += if_so if accumulator == constant else if_not
            case 0x35:
                position += if_so if accumulator >= constant else if_not
            case 0x06:
                return _meaning(constant)
            case _:
                raise AssertionError(f"no such operation: {operation:#x}")


def _meaning(answer: int) -> object:
    if answer == 0x80000000:
        return KILLED
    if answer == 0x7FC00000:
        return ASKED
    assert answer == 0x7FFF0000 or answer >> 16 == 0x0005
    return 0 if answer == 0x7FFF0000 else answer & 0xFFFF


def says(wanted: Filter, machine: str, name: str, *arguments: int) -> object:
    return judge(program(wanted, machine), machine, NUMBERS[machine][name], arguments)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("wanted", FILTERS, ids=str)
def test_calls_that_are_not_listed_are_permitted_and_those_always_denied_are_not(
    machine: str, wanted: Filter
) -> None:
    code, names = program(wanted, machine), {number: name for name, number in NUMBERS[machine].items()}
    refused = refusals(wanted)
    for number in range(NEWEST + 1):
        rules = refused.get(names.get(number, ""), ())
        if not rules:
            assert judge(code, machine, number) == 0
        elif not rules[0].when:
            assert judge(code, machine, number) == rules[0].error


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("wanted", FILTERS, ids=str)
def test_ordinary_calls_are_permitted(machine: str, wanted: Filter) -> None:
    for number in ORDINARY[machine].values():
        assert judge(program(wanted, machine), machine, number) == 0


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_of_another_architecture_kill_the_process(machine: str) -> None:
    other = ARCHITECTURES["aarch64" if machine == "x86_64" else "x86_64"]
    for architecture in (*FOREIGN[:2], 0xDEADBEEF, other):
        assert (
            judge(program(LOOSEST, machine), machine, ORDINARY[machine]["read"], (), architecture) == KILLED
        )


@pytest.mark.parametrize("machine", MACHINES)
@given(number=st.integers(NEWEST + 1, 2**32 - 1))
def test_a_call_unknown_to_the_filter_does_not_exist(machine: str, number: int) -> None:
    assert judge(program(LOOSEST, machine), machine, number) == errno.ENOSYS


@given(
    wanted=st.sampled_from(FILTERS),
    machine=st.sampled_from(MACHINES),
    number=st.integers(0, 2**32 - 1),
    arguments=st.lists(st.integers(0, 2**64 - 1), max_size=6),
    architecture=st.sampled_from([*ARCHITECTURES.values(), *FOREIGN]),
)
def test_a_program_has_a_result_for_any_call(
    wanted: Filter, machine: str, number: int, arguments: list[int], architecture: int
) -> None:
    assert judge(program(wanted, machine), machine, number, arguments, architecture) is not None


@pytest.mark.parametrize("machine", MACHINES)
def test_an_engine_asks_before_each_program_and_about_nothing_else(machine: str) -> None:
    def asks(number: int) -> bool:
        return judge(sole_exec.program(machine), machine, number) == ASKED

    assert {number for number in range(NEWEST + 1) if asks(number)} == {
        NUMBERS[machine]["execve"],
        NUMBERS[machine]["execveat"],
    }


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ((1, 0), 0),
        ((1, 1), 0),  # for all threads
        ((1, 8), errno.EBUSY),
        ((1, 8 | 16 | 32), errno.EBUSY),
        ((1, HIGH_HALF | 8), errno.EBUSY),
        ((3, 0), 0),
    ],
)
def test_an_engine_cannot_answer_for_its_own_programs(
    machine: str, arguments: tuple[int, ...], answer: int
) -> None:
    assert judge(sole_exec.program(machine), machine, SYS_SECCOMP[machine], arguments) == answer


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("name", "arguments", "answer"),
    [
        ("clone", (0x11,), 0),
        ("clone", (0x3D0F00,), 0),  # a thread
        ("clone", (0x10000000 | 0x11,), errno.EPERM),
        ("clone", (0x40000000,), errno.EPERM),
        ("fcntl", (3, 1024, 0), errno.EACCES),  # a lease
        ("fcntl", (3, 1030, 0), 0),  # a duplicate
        ("clone3", (), errno.ENOSYS),
        ("unshare", (0x400,), 0),  # files
        ("unshare", (0x20000,), errno.EPERM),
        ("unshare", (0x80,), errno.EPERM),
        ("personality", (0,), 0),
        ("personality", (0xFFFFFFFF,), 0),
        ("personality", (0x0040000,), errno.EPERM),
        ("personality", (HIGH_HALF | 0x0040000,), errno.EPERM),
        ("fallocate", (3, 0), 0),
        ("fallocate", (3, 3), 0),  # a hole
        ("fallocate", (3, 1), errno.EOPNOTSUPP),
        ("fallocate", (3, 0x11), errno.EOPNOTSUPP),
        ("fallocate", (3, 0x20), errno.EOPNOTSUPP),  # a range is inserted, and the file gets longer
        ("ioctl", (0, 0x40305828), errno.EOPNOTSUPP),
        ("ioctl", (0, 0x5000940E), errno.EOPNOTSUPP),  # a subvolume of btrfs
        ("ioctl", (0, 0x50009401), errno.EOPNOTSUPP),  # a snapshot
        ("ioctl", (0, HIGH_HALF | 0x50009417), errno.EOPNOTSUPP),
        ("ioctl", (0, 0x4010BC10), errno.EOPNOTSUPP),  # a subvolume of bcachefs
        ("ioctl", (0, 0x40049409), 0),  # a clone of a file
        ("ioctl", (0, 0x4020940D), 0),
        ("ioctl", (0, 0xC0189436), 0),
        ("ioctl", (0, 0x5401), 0),
        ("ioctl", (0, 0x5412), errno.EPERM),
        ("ioctl", (0, HIGH_HALF | 0x5412), errno.EPERM),
        ("ioctl", (0, 0x541C), errno.EPERM),
        ("fchmod", (3, 0o755), 0),
        ("fchmod", (3, SET_UID), errno.EPERM),
        ("fchmodat", (0, 0, stat.S_ISGID), errno.EPERM),
        ("fchmodat2", (0, 0, SET_UID), errno.EPERM),
        ("openat", (0, 0, CREATE, 0o644), 0),
        ("openat", (0, 0, CREATE, SET_UID), errno.EPERM),
        ("openat", (0, 0, os.O_TMPFILE | os.O_WRONLY, SET_UID), errno.EPERM),
        ("openat", (0, 0, os.O_RDONLY, SET_UID), 0),
        ("openat", (0, 0, os.O_DIRECTORY, SET_UID), 0),
        ("openat2", (), errno.ENOSYS),
        ("mknodat", (0, 0, stat.S_IFIFO | 0o600), 0),
        ("mknodat", (0, 0, stat.S_IFREG | SET_UID), errno.EPERM),
        ("mknodat", (0, 0, stat.S_IFCHR | 0o600), errno.EPERM),
        ("mknodat", (0, 0, stat.S_IFBLK | 0o600), errno.EPERM),
        ("prlimit64", (0, 7), 0),
        ("prlimit64", (4321, 7), errno.EPERM),
        ("sched_setaffinity", (4321,), errno.EPERM),
        ("setpriority", (0, 0, 5), 0),
        ("setpriority", (0, 4321, 5), errno.EPERM),
        ("setpriority", (2, 0, 5), errno.EPERM),
        ("ioprio_set", (1, 0), 0),
        ("ioprio_set", (3, 0), errno.EPERM),
        ("socketpair", (socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC), 0),
        ("socketpair", (socket.AF_UNIX, socket.SOCK_SEQPACKET), 0),
        ("socketpair", (socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK), errno.EPERM),
        ("socketpair", (socket.AF_UNIX, socket.SOCK_RAW), errno.EPERM),
        ("socketpair", (30, socket.SOCK_STREAM), errno.EAFNOSUPPORT),
        *[("socket", (family, socket.SOCK_STREAM), errno.EAFNOSUPPORT) for family in range(64)],
        ("inotify_init1", (), errno.ENOSYS),
        ("shmget", (), errno.ENOSYS),
        ("memfd_create", (), errno.ENOSYS),
        ("execve", (), errno.EPERM),
        ("execveat", (), errno.EPERM),
    ],
)  # fmt: skip
def test_some_calls_are_denied_by_their_arguments(
    machine: str, name: str, arguments: tuple[int, ...], answer: int
) -> None:
    assert says(STRICTEST, machine, name, *arguments) == answer


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ((socket.AF_INET, socket.SOCK_STREAM), 0),
        ((socket.AF_INET6, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK), 0),
        ((socket.AF_INET, socket.SOCK_RAW), errno.EPERM),
        ((socket.AF_INET6, socket.SOCK_RAW | socket.SOCK_CLOEXEC), errno.EPERM),
        ((socket.AF_INET, 10), errno.EPERM),
        ((socket.AF_INET, socket.SOCK_SEQPACKET), errno.EPERM),
        ((socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP), 0),
        ((socket.AF_INET6, socket.SOCK_DGRAM, socket.IPPROTO_ICMPV6), 0),
        ((socket.AF_INET, socket.SOCK_STREAM, 132), errno.EPROTONOSUPPORT),
        ((socket.AF_INET, socket.SOCK_STREAM, 262), errno.EPROTONOSUPPORT),
        ((socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE), 0),
        ((socket.AF_NETLINK, socket.SOCK_RAW, 9), errno.EPROTONOSUPPORT),
        ((socket.AF_UNIX, socket.SOCK_STREAM), errno.EAFNOSUPPORT),
        ((HIGH_HALF | socket.AF_UNIX, socket.SOCK_STREAM), errno.EAFNOSUPPORT),
        ((socket.AF_PACKET, socket.SOCK_DGRAM), errno.EAFNOSUPPORT),
        ((socket.AF_VSOCK, socket.SOCK_STREAM), errno.EAFNOSUPPORT),
        ((socket.AF_ALG, socket.SOCK_SEQPACKET), errno.EAFNOSUPPORT),
    ],
)
def test_the_network_permits_only_internet_sockets(arguments: tuple[int, ...], answer: int) -> None:
    for machine in MACHINES:
        assert says(LOOSEST, machine, "socket", *arguments) == answer


@pytest.mark.parametrize(
    ("name", "arguments", "answer"),
    [
        ("shmget", (0, 56), 0),
        ("shmget", (0, 4096), 0),
        ("shmget", (0, 8192), errno.ENOSYS),
        ("shmget", (0, 1 << 31), errno.ENOSYS),
        ("shmget", (0, HIGH_HALF | 56), errno.ENOSYS),
        ("msgget", (0,), errno.ENOSYS),
        ("semget", (0, 1), errno.ENOSYS),
        ("mq_open", (), errno.ENOSYS),
        ("shmat", (0,), 0),
    ],
)
def test_a_cell_has_only_small_segments_of_its_own(
    name: str, arguments: tuple[int, ...], answer: int
) -> None:
    for machine in MACHINES:
        assert says(LOOSEST, machine, name, *arguments) == answer


@pytest.mark.parametrize("name", ["prlimit64", "sched_setaffinity", "inotify_init1", "shmget", "execve", "memfd_create"])  # fmt: skip
def test_a_cell_may_use_its_own_objects(name: str) -> None:
    for machine in MACHINES:
        assert says(LOOSEST, machine, name, 4321) == 0
        assert says(STRICTEST, machine, name, 4321) != 0


def test_every_denied_call_has_a_number_on_processors_that_have_it() -> None:
    named = set(refusals(STRICTEST)) | set(CALLS) | set(CALLS_OF_A_GUARD) | set(ASKED_CALLS)
    assert named == set(NUMBERS["x86_64"])
    assert set(NUMBERS["aarch64"]) < named


@pytest.mark.parametrize("machine", MACHINES)
def test_an_inspector_may_call_what_is_listed_and_nothing_else(machine: str) -> None:
    code, numbers = only(CALLS, machine), NUMBERS[machine]
    listed = {numbers[name] for name in CALLS}
    for number in range(NEWEST + 10):
        assert judge(code, machine, number) == (0 if number in listed else errno.EPERM)
        assert judge(code, machine, number | 1 << 30) == errno.EPERM  # x32
        assert judge(code, machine, number, architecture=FOREIGN[0]) == KILLED


def test_equal_policies_have_the_same_filter() -> None:
    assert filter_of(SandboxPolicy("baseline"), memory_files=False) == Filter(False, True, False, False)
    assert filter_of(SandboxPolicy("baseline", network="proxy"), memory_files=False).network is False
    assert filter_of(SandboxPolicy("baseline", network="open"), memory_files=False).network is True
    assert filter_of(SandboxPolicy("strict", execute=False), memory_files=True) == Filter(
        True, False, True, True
    )


@pytest.mark.parametrize(
    ("memory_bytes", "held", "allowed"), [(None, False, True), (2**20, False, False), (2**20, True, True)]
)
def test_files_in_memory_are_permitted_if_memory_is_limited_by_the_kernel_or_not_at_all(
    memory_bytes: int | None, held: bool, allowed: bool
) -> None:
    file = ToolFile("/a.py", "project", "local", "a", b"", "a", "/")
    spec = CellSpec(file, "/", (), CellLimits(memory_bytes=memory_bytes), SandboxPolicy("baseline"))
    setup = CellSetup.from_json(json.loads(spec.setup_message("", {}, memory_held=held)))
    assert setup.memory_files is allowed
    machine = os.uname().machine
    filtered = filter_of(setup.policy, memory_files=setup.memory_files)
    assert (says(filtered, machine, "memfd_create", 0) == 0) is allowed


def test_an_unknown_processor_is_an_error() -> None:
    with pytest.raises(OSError, match="riscv64"):
        program(LOOSEST, "riscv64")
