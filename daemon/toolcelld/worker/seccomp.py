"""Judges the system calls of a cell: a classic-BPF program, assembled here and loaded last.

What is refused stands in `refusals`. A program for the wrong kind of processor is killed at its
first call, because its numbers mean other calls; a call that came after our list was made is
refused as unknown. Numbers are looked up in a tree, and the kernel remembers which calls are never
refused, so that reading and writing cost nothing. Arguments are compared by their low half, as the
kernel takes those that are of less than 64 bits; that is all that are looked at.
"""

from __future__ import annotations

import errno
import functools
import itertools
import os
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from toolcelld.worker import linux
from toolcelld.worker.refusals import ALL_BITS, Filter, Is, Refusal, refusals
from toolcelld.worker.syscalls import NEWEST, NUMBERS

__all__ = ["load", "program", "warm_up"]

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
KILL: Final = 0x80000000  # the whole process
NUMBER_OFFSET: Final = 0
ARCHITECTURE_OFFSET: Final = 4
ARGUMENTS_OFFSET: Final = 16
ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

LEAF_MAX: Final = 4
"""Numbers that are compared one by one; more are halved first."""

Instruction: TypeAlias = tuple[int, int, int, int]


def load(wanted: Filter) -> str:
    """Put this process and all that it will start under the filter, for good; the layer's name."""
    linux.filter_system_calls(program(wanted, os.uname().machine))
    sockets = "internet sockets only" if wanted.network else "no sockets"
    return f"system-call filter, {sockets}{'' if wanted.programs else ', no programs'}"


def warm_up() -> None:
    """Assemble every program there is, so that no worker has to."""
    with_and_without = (False, True)
    for choices in itertools.product(with_and_without, repeat=4):
        program(Filter(*choices), os.uname().machine)


@functools.cache
def program(wanted: Filter, machine: str) -> bytes:
    """The program for a machine; raises `OSError` for one that we have no numbers for."""
    if machine not in NUMBERS or sys.byteorder != "little":
        raise OSError(errno.EOPNOTSUPP, f"the numbers of {machine}'s system calls are not known here")
    numbers = NUMBERS[machine]
    refused = refusals(wanted)
    bodies = {numbers[name]: _body(refused[name]) for name in refused if name in numbers}
    instructions = [
        (LOAD, 0, 0, ARCHITECTURE_OFFSET),
        (JUMP_IF_EQUAL, 1, 0, ARCHITECTURES[machine]),
        # 32-bit calls have numbers and structures of their own; a program of that kind ends at its first one.
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER_OFFSET),
        # x32's calls are in here too, with bit 30 set.
        (JUMP_IF_NOT_BELOW, 0, 1, NEWEST + 1),
        (RETURN, 0, 0, FAIL | errno.ENOSYS),
        *_search(sorted(bodies.items())),
    ]
    assert len(instructions) <= INSTRUCTIONS_MAX
    return b"".join(INSTRUCTION.pack(*instruction) for instruction in instructions)


def _search(bodies: Sequence[tuple[int, Sequence[Instruction]]]) -> list[Instruction]:
    """From the number in the accumulator to its body; every way through ends in a return."""
    if len(bodies) > LEAF_MAX:
        middle = len(bodies) // 2
        below, rest = _search(bodies[:middle]), _search(bodies[middle:])
        # The way over the lower half may be longer than the byte that a conditional jump has for it.
        return [(JUMP_IF_NOT_BELOW, 0, 1, bodies[middle][0]), (JUMP, 0, 0, len(below)), *below, *rest]
    instructions: list[Instruction] = []
    for number, body in bodies:
        instructions += [(JUMP_IF_EQUAL, 0, len(body), number), *body]
    return [*instructions, (RETURN, 0, 0, ALLOW)]


def _body(refused: Iterable[Refusal]) -> list[Instruction]:
    instructions: list[Instruction] = []
    for refusal in refused:
        branch: list[Instruction] = [(RETURN, 0, 0, FAIL | refusal.error)]
        for condition in reversed(refusal.when):
            branch = [*_test(condition, len(branch)), *branch]
        instructions += branch
    return [*instructions, (RETURN, 0, 0, ALLOW)]


def _test(condition: Is, past: int) -> Iterator[Instruction]:
    """Go on when the condition holds, else skip `past` instructions."""
    yield LOAD, 0, 0, ARGUMENTS_OFFSET + 8 * condition.argument
    if condition.bits != ALL_BITS:
        yield AND, 0, 0, condition.bits
    *others, last = condition.values
    holds, fails = (past, 0) if condition.inverted else (0, past)
    for position, value in enumerate(others):
        yield JUMP_IF_EQUAL, len(others) - position + holds, 0, value
    yield JUMP_IF_EQUAL, holds, fails, last
