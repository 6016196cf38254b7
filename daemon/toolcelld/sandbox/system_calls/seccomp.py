"""The system-call filter of a cell: a classic BPF program, assembled here and loaded last.

`refusals` lists what is refused. A program for another architecture is killed at its first call, because its call
numbers have other meanings; a call that is newer than the list fails with ENOSYS. The program finds numbers by binary
search, and the kernel caches calls that are always allowed, so that reads and writes cost nothing. Only the low 32 bits
of an argument are compared, unless a condition asks for the others: the kernel uses no more of most arguments.
"""

from __future__ import annotations

import errno
import functools
import itertools
import os
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from toolcelld import linux
from toolcelld.sandbox.system_calls.denied_syscalls import (
    ALL_BITS,
    DeniedSyscall,
    Filter,
    Is,
    Table,
    refusals,
    refusals_on,
)
from toolcelld.sandbox.system_calls.syscalls import NEWEST, NUMBERS

# <linux/bpf_common.h>
LOAD: Final = 0x20  # a word of struct seccomp_data into the accumulator
AND: Final = 0x54
JUMP: Final = 0x05
JUMP_IF_EQUAL: Final = 0x15
JUMP_IF_NOT_BELOW: Final = 0x35
RETURN: Final = 0x06
INSTRUCTION: Final = struct.Struct("=HBBI")
INSTRUCTIONS_MAX: Final = 4096  # BPF_MAXINSNS

# <linux/seccomp.h> and <linux/audit.h>
ALLOW: Final = 0x7FFF0000
FAIL: Final = 0x00050000  # with the errno
ASK: Final = 0x7FC00000  # SECCOMP_RET_USER_NOTIF
KILL: Final = 0x80000000  # the whole process
NUMBER_OFFSET: Final = 0
ARCHITECTURE_OFFSET: Final = 4
ARGUMENTS_OFFSET: Final = 16
ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

LEAF_MAX: Final = 4
"""Up to this many numbers are compared one by one; a longer range is split first."""

Instruction: TypeAlias = tuple[int, int, int, int]


def load(wanted: Filter) -> str:
    """Load the filter, irrevocably and for all future children; return the name of the layer."""
    linux.filter_system_calls(program(wanted, os.uname().machine))
    sockets = "internet sockets only" if wanted.network else "no sockets"
    sockets += "" if wanted.listen else " that do not listen"
    return f"system-call filter, {sockets}{'' if wanted.programs else ', no programs'}"


def warm_up() -> None:
    """Assemble all variants of the program ahead of need."""
    with_and_without = (False, True)
    for choices in itertools.product(with_and_without, repeat=5):
        wanted = Filter(*choices)
        if wanted.listen or wanted.network:
            program(wanted, os.uname().machine)


@functools.cache
def program(wanted: Filter, machine: str) -> bytes:
    """Return the program for an architecture. Raises `OSError` if its call numbers are not known."""
    if machine not in NUMBERS or sys.byteorder != "little":
        raise OSError(errno.EOPNOTSUPP, f"the numbers of {machine}'s system calls are not known here")
    return _assemble(refusals(wanted), machine)


def protecting(pids: tuple[int, ...]) -> bytes:
    """Return the program that refuses what acts by number on these processes, or by group or user on all of them."""
    return _assemble(refusals_on(pids), os.uname().machine)


def only(names: Sequence[str], machine: str) -> bytes:
    """Return the program that allows these calls alone; all others fail with EPERM. For a process of the daemon's own.

    Raises `OSError` if the numbers of an architecture's calls are not known.
    """
    if machine not in NUMBERS or sys.byteorder != "little":
        raise OSError(errno.EOPNOTSUPP, f"the numbers of {machine}'s system calls are not known here")
    numbers = (NUMBERS[machine][name] for name in names)
    allowed = [((JUMP_IF_EQUAL, 0, 1, number), (RETURN, 0, 0, ALLOW)) for number in numbers]
    return _packed(
        [*_of_architecture(machine), *itertools.chain(*allowed), (RETURN, 0, 0, FAIL | errno.EPERM)]
    )


def asking(machine: str, names: Iterable[str], where: Mapping[str, tuple[int, int]] | None = None) -> bytes:
    """Return the program that has the callers of these calls wait for the answer of a listener.

    It also refuses to load a program with another listener, which would answer in place of the first one: the kernel asks
    the newest, and allows another one as soon as the first is closed. It counts beside the program of the cell, which
    kills calls of another architecture.

    Args:
        machine: As `uname` names it.
        names: Calls that always wait.
        where: Calls that wait if an argument has one of some bits: the argument and the bits. None by default.
    """
    numbers = NUMBERS[machine]
    instructions: list[Instruction] = [(LOAD, 0, 0, NUMBER_OFFSET)]
    for name in names:
        if name in numbers:
            instructions += [(JUMP_IF_EQUAL, 0, 1, numbers[name]), (RETURN, 0, 0, ASK)]
    tested = {numbers[name]: (*test, ASK) for name, test in (where or {}).items() if name in numbers}
    tested[linux.SYS_SECCOMP[machine]] = (1, linux.SECCOMP_FILTER_FLAG_NEW_LISTENER, FAIL | errno.EBUSY)
    for number, (argument, bits, result) in tested.items():
        instructions += [
            (JUMP_IF_EQUAL, 0, 5, number),
            (LOAD, 0, 0, ARGUMENTS_OFFSET + 8 * argument),
            (AND, 0, 0, bits),
            (JUMP_IF_EQUAL, 1, 0, 0),
            (RETURN, 0, 0, result),
            (RETURN, 0, 0, ALLOW),
        ]
    return _packed([*instructions, (RETURN, 0, 0, ALLOW)])


def _assemble(refused: Table, machine: str) -> bytes:
    numbers = NUMBERS[machine]
    bodies = {numbers[name]: _body(refused[name]) for name in refused if name in numbers}
    return _packed(
        [
            *_of_architecture(machine),
            # x32 calls are refused here too: they have bit 30 set.
            (JUMP_IF_NOT_BELOW, 0, 1, NEWEST + 1),
            (RETURN, 0, 0, FAIL | errno.ENOSYS),
            *_search(sorted(bodies.items())),
        ]
    )


def _of_architecture(machine: str) -> list[Instruction]:
    """Kill calls of another architecture, then have the number of the call in the accumulator."""
    return [
        (LOAD, 0, 0, ARCHITECTURE_OFFSET),
        (JUMP_IF_EQUAL, 1, 0, ARCHITECTURES[machine]),
        # 32-bit calls have other numbers and structures; a 32-bit program is killed at its first call.
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER_OFFSET),
    ]


def _packed(instructions: Sequence[Instruction]) -> bytes:
    assert len(instructions) <= INSTRUCTIONS_MAX
    return b"".join(INSTRUCTION.pack(*instruction) for instruction in instructions)


def _search(bodies: Sequence[tuple[int, Sequence[Instruction]]]) -> list[Instruction]:
    """Jump from the number in the accumulator to its body; every path ends in a return."""
    if len(bodies) > LEAF_MAX:
        middle = len(bodies) // 2
        below, rest = _search(bodies[:middle]), _search(bodies[middle:])
        # A conditional jump has only a byte for its distance, so an unconditional one skips the lower half.
        return [(JUMP_IF_NOT_BELOW, 0, 1, bodies[middle][0]), (JUMP, 0, 0, len(below)), *below, *rest]
    instructions: list[Instruction] = []
    for number, body in bodies:
        instructions += [(JUMP_IF_EQUAL, 0, len(body), number), *body]
    return [*instructions, (RETURN, 0, 0, ALLOW)]


def _body(refused: Iterable[DeniedSyscall]) -> list[Instruction]:
    instructions: list[Instruction] = []
    for refusal in refused:
        branch: list[Instruction] = [(RETURN, 0, 0, FAIL | refusal.error)]
        for condition in reversed(refusal.when):
            branch = [*_test(condition, len(branch)), *branch]
        instructions += branch
    return [*instructions, (RETURN, 0, 0, ALLOW)]


def _test(condition: Is, past: int) -> Iterator[Instruction]:
    """Continue if the condition holds, else skip `past` instructions."""
    yield LOAD, 0, 0, ARGUMENTS_OFFSET + 8 * condition.argument + 4 * condition.upper
    if condition.bits != ALL_BITS:
        yield AND, 0, 0, condition.bits
    *others, last = condition.values
    holds, fails = (past, 0) if condition.inverted else (0, past)
    for position, value in enumerate(others):
        yield JUMP_IF_EQUAL, len(others) - position + holds, 0, value
    yield JUMP_IF_EQUAL, holds, fails, last
