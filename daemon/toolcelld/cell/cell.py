"""The daemon's side of one cell: its descriptors, its keeper's life line, and its end.

    life line     commands to the keeper, exit reports from it (see `worker.keeper`)
    protocol      frames to and from the worker
    abort         the number of an aborted call, and the reason; separate, so that it overtakes the protocol
    handover      sockets of the cell's own network (see `cell.handover`)
    stdout, err   the tool's output: data, never protocol

A cell always ends in the same way: the keeper kills every process below it and exits, the zygote reaps it and
reports that, and `ended` is set to the `CellExit`. `CellExit.proof` says how far the empty cell is proven.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import select
import signal
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from toolcelld.cell.cgroup import Cgroup, CgroupTree, CgroupUsage
from toolcelld.cell.channel import WorkerChannel, open_pipe, refuse_descriptors
from toolcelld.cell.crash_stack import FATAL_SIGNALS, split
from toolcelld.cell.exit import CellExit, Proof, cause_of
from toolcelld.cell.handover import Handover
from toolcelld.cell.kernel_log import KernelKill, KernelLog
from toolcelld.cell.processes.processes import CellProcesses
from toolcelld.cell.stdio import SOURCES, Source, StdioReader
from toolcelld.cell.zygote import Spawned, Zygote, ZygoteFailed
from toolcelld.output.redaction import Redactor
from toolcelld.protocol.frames import Frame, FrameError
from toolcelld.sandbox.policy import CellLimits, Enclosure

END_SECONDS_MAX: Final = 10.0
"""A keeper ends its cell within milliseconds, on a loaded machine within seconds. After this time it is killed, and the
zygote kills the rest, which proves less."""
DESCRIPTORS_MIN: Final = 128
"""A keeper moves its descriptors to numbers from 64; two preforked cells of each kind and gRPC take some dozens."""
HELD: Final = 2
"""Of the processes of a template those that run no tool: itself, and what holds the memory of a call."""
ABORT_HEADER: Final = struct.Struct(">QH")


class Receiver:
    """The callbacks of a cell to its owner. They are called on the loop and must not block."""

    def on_frame(self, frame: Frame) -> None:
        """The worker sent a frame."""

    def on_output(self, source: Source, data: bytes) -> bool:
        """The tool wrote output. Return True to pause reading until `Cell.resume_output`."""
        return False

    def on_broken(self, error: FrameError) -> None:
        """The worker sent an invalid frame; the cell is being ended."""


_PROOFS_OF_KEEPER: Final[Mapping[str, Proof]] = {"namespace": "namespace", "landlock": "landlock"}


class Cell:
    """A running cell. `Cell.start` creates it; it has ended when `ended` is done."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.processes = CellProcesses()
        self.loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[CellExit] = self.loop.create_future()
        self._spawned: Spawned | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._end_task: asyncio.Task[None] | None = None
        self._status: int | None = None
        self._cpu_seconds = 0.0
        self._memory_peak_bytes = 0
        self._killed = 0
        self._proof: Proof = "none"
        self._cgroups: CgroupTree | None = None
        self._cgroup: Cgroup | None = None
        self._kernel_log: KernelLog | None = None
        self._born = time.monotonic()
        self._count_answers: deque[asyncio.Future[int]] = deque()
        self.named = asyncio.Event()
        """Set when its keeper has said which process is the worker, or when it has ended."""
        self.stdio = StdioReader(self._on_stdio)
        self.channel = WorkerChannel(receiver.on_frame, self._on_frame_error)
        self._life: socket.socket
        self._abort: socket.socket
        self._handover: Handover | None = None  # of a cell with a network of its own

    @classmethod
    async def start(
        cls, zygote: Zygote, receiver: Receiver, *, enclosure: Enclosure = "none", host_network: bool = False
    ) -> Cell:
        """Fork a keeper, and have it build the cell.

        Args:
            zygote: Forks the keeper.
            receiver: Receives the cell's frames and output.
            enclosure: What the cell is going to be; "none" by default.
            host_network: Whether a strict cell uses the network of the host; False by default.

        Raises:
            ZygoteEnded: The zygote has ended meanwhile; the next one can start the cell.
            ZygoteFailed: The cell cannot be started; no process of it is left.
        """
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if 0 <= descriptors < DESCRIPTORS_MIN:
            raise ZygoteFailed(
                f"a cell needs descriptors that the daemon cannot get: it may have {descriptors}, and needs {DESCRIPTORS_MIN} "
                "or more (ulimit -n)"
            )
        cell = cls(receiver)
        cell._kernel_log = zygote.kernel_log
        child_ends: list[int] = []
        try:
            cell._life, life = _pair(socket.SOCK_SEQPACKET)
            refuse_descriptors(cell._life)
            child_ends.append(life)
            protocol, protocol_child = _sending_pair(socket.SOCK_STREAM)
            child_ends.append(protocol_child)
            reports, reports_child = open_pipe()
            child_ends.append(reports_child)
            cell.channel.open_reports(reports)
            cell._abort, abort = _sending_pair(socket.SOCK_STREAM)
            child_ends.append(abort)
            child_ends.extend(cell.stdio.add(source) for source in SOURCES)
            if enclosure == "strict" and not host_network:
                handover, handover_child = _pair(socket.SOCK_SEQPACKET)
                child_ends.append(handover_child)
                cell._handover = Handover(handover)
            await cell.channel.open(protocol)
            cell._spawned = await zygote.spawn(child_ends, enclosure=enclosure, host_network=host_network)
            cell.processes.keeper_pid = cell._spawned.pid
            await cell._join_cgroup(zygote.cgroups)
            cell.loop.add_reader(cell._life, cell._on_keeper_message)
            cell.stdio.start()
        except OSError as error:
            cell._close()
            raise ZygoteFailed(
                f"a cell needs descriptors that the daemon cannot get: {error.strerror}"
            ) from error
        except BaseException:
            cell._close()
            raise
        finally:
            for number in child_ends:
                os.close(number)
        cell._spawned.swept.add_done_callback(cell._on_swept)
        # The barrier: the keeper forks only after it is in the cell's cgroup, if there is one.
        cell._send_to_keeper(b"go")
        return cell

    async def _join_cgroup(self, cgroups: CgroupTree) -> None:
        """Move the keeper into a cgroup of its own; if that fails, only the limit monitor enforces the limits."""
        self._cgroups, self._cgroup = cgroups, cgroups.make()
        if self._cgroup is not None:
            try:
                await asyncio.to_thread(self._cgroup.join, self.processes.keeper_pid)
            except OSError:
                self._leave_cgroup()

    def _leave_cgroup(self) -> bool:
        """Remove the cgroup; True proves that no process was left in it."""
        cgroup, self._cgroup = self._cgroup, None
        return cgroup is not None and self._cgroups is not None and self._cgroups.remove(cgroup)

    def limit(self, limits: CellLimits) -> bool:
        """Have the kernel enforce limits on the sum of the cell's processes, as far as it has a cgroup.

        Returns:
            Whether the kernel limits the memory. That includes files in memory, which the limit monitor cannot measure.
        """
        if self._cgroup is not None:
            with contextlib.suppress(OSError):
                return self._cgroup.limit(limits)
        return False

    @property
    def redactor(self) -> Redactor | None:
        """What replaces the secrets of the cell; None if it has none."""
        return self.channel.redactor

    def redact(self, redactor: Redactor) -> None:
        """Replace these secrets in everything that the cell sends or prints from now on."""
        self.channel.redact(redactor)
        self.stdio.redact(redactor)

    # From the worker, for the current receiver

    def pass_on_to(self, receiver: Receiver) -> None:
        """Pass frames and output on to another receiver from now on."""
        self.receiver = receiver
        self.channel.on_frame = receiver.on_frame

    def _on_frame_error(self, error: FrameError) -> None:
        self.receiver.on_broken(error)
        self.end()

    # The tool's output

    def _on_stdio(self, source: Source, data: bytes) -> bool:
        return self.receiver.on_output(source, data)

    # To the keeper

    def abort(self, sequence: int, reason: str) -> None:
        """Ask the worker to abort its calls up to a number; returns at once. Has no effect while the cell is being ended.

        Args:
            sequence: The number of the last call to abort.
            reason: What the tool's `Aborted` says; cut at 1000 bytes.
        """
        if self._end_task is not None:
            return
        with contextlib.suppress(OSError):  # the cell has ended, or the channel is full of earlier aborts
            # A message is much shorter than what the kernel takes at once, so it is never sent in part.
            text = reason.encode(errors="replace")[:1000]
            self._abort.send(ABORT_HEADER.pack(sequence, len(text)) + text)
        self._send_to_keeper(b"abort")

    def resend_abort(self) -> None:
        """Signal the worker once more; an abort that it has delivered is not delivered again."""
        if self._end_task is None:
            self._send_to_keeper(b"abort")

    def take_guarded(self) -> None:
        """Take note that the worker's process is a guard now, and its first child the worker.

        Where there is no child the worker has exited, and the guard is about to.
        """
        if self.processes.begin_guarded() and not self._send_to_keeper(b"guarded"):
            self.end()  # it would count the worker among what the worker has started

    def receive_sockets(self, on_socket: Callable[[socket.socket], None] | None) -> None:
        """Receive the sockets that the worker opens in the cell's own network, if it has one.

        Args:
            on_socket: Called with each socket, which it owns; None receives none.
        """
        if self._handover is None:
            return
        if on_socket is None:
            self._handover.close()
        else:
            self._handover.receive(on_socket)

    def count_leftovers(self) -> asyncio.Future[int]:
        """Ask the keeper for the number of processes besides the worker; -1 when it has exited."""
        answer: asyncio.Future[int] = self.loop.create_future()
        self._count_answers.append(answer)
        if not self._send_to_keeper(b"count"):
            self._fail_counts()
        return answer

    @property
    def is_ending(self) -> bool:
        """Whether the daemon has begun to end it."""
        return self._end_task is not None

    def end(self) -> None:
        """Begin to end the cell, and return at once. `ended` is done when it is empty. Safe to call twice."""
        if self._end_task is None and not self.ended.done():
            self._kill()
            self._end_task = self.loop.create_task(self._end())  # its result is `ended`; it cannot fail

    def _kill(self) -> None:
        # The cgroup first: it also kills processes that are being forked, and the keeper.
        if self._cgroup is not None:
            self._killed = max(0, len(self._cgroup.members()) - len(self.processes.builders))
            if self._cgroup.kill():
                return
        if not self._send_to_keeper(b"end"):
            # A keeper that waits for a processor has its queue full of other words; the end of the life line is one more.
            with contextlib.suppress(OSError):
                self._life.shutdown(socket.SHUT_WR)

    async def _end(self) -> None:
        spawned = self._spawned
        assert spawned is not None
        await asyncio.wait([self.ended], timeout=END_SECONDS_MAX)
        if self.ended.done():
            return
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(spawned.pidfd, signal.SIGKILL)
        await asyncio.wait([self.ended], timeout=END_SECONDS_MAX)
        if not self.ended.done():
            self._finish()  # neither keeper nor zygote answers: the proof is "none"

    # From the keeper

    def _send_to_keeper(self, word: bytes) -> bool:
        try:
            self._life.send(word, socket.MSG_NOSIGNAL)
        except OSError:
            return False
        return True

    def _on_keeper_message(self) -> None:
        while True:
            try:
                message = self._life.recv(256)
            except BlockingIOError:
                return
            except ConnectionError:
                message = b""
            if not message:
                self.loop.remove_reader(self._life)
                self._fail_counts()
                # The zygote reaps the keeper within milliseconds. A stopped zygote never would, so it is replaced.
                if self._sweep_timer is None:
                    assert self._spawned is not None
                    self._sweep_timer = self.loop.call_later(END_SECONDS_MAX, self._spawned.replace_zygote)
                return
            word, *values = message.decode("ascii").split()
            if word == "left":
                if self._count_answers and not (answer := self._count_answers.popleft()).done():
                    answer.set_result(int(values[0]))
            elif word == "pid":
                self.processes.begin(int(values[0]), int(values[1]) if len(values) > 1 else 0)
                self.named.set()
            elif word == "exit":
                if self._status is not None:
                    continue  # init has reported it, and this is its own exit
                self._status = int(values[0])
                self._cpu_seconds = float(values[1])
                self._memory_peak_bytes = int(values[2]) * 1024
            elif word == "empty":
                self._killed = int(values[0])
                self._proof = _PROOFS_OF_KEEPER.get(values[1], "children")

    def _fail_counts(self) -> None:
        while self._count_answers:
            if not (answer := self._count_answers.popleft()).done():
                answer.set_result(-1)

    def _on_swept(self, swept: asyncio.Future[bool]) -> None:
        """The zygote has reaped the keeper and killed what was left, or the zygote has ended."""
        if self.ended.done():
            return
        spawned = self._spawned
        assert spawned is not None
        with contextlib.suppress(OSError):
            self._on_keeper_message()  # the keeper's last messages
        if _has_exited(spawned.pidfd):
            if self._proof == "none" and swept.result():
                self._proof = "zygote"
            self._finish()
        else:  # the zygote has ended: wait for the keeper's own exit
            self.loop.add_reader(spawned.pidfd, self._on_keeper_exit)

    def _on_keeper_exit(self) -> None:
        assert self._spawned is not None
        self.loop.remove_reader(self._spawned.pidfd)
        if not self.ended.done():
            with contextlib.suppress(OSError):
                self._on_keeper_message()
            self._finish()

    def _finish(self) -> None:
        self.stdio.drain()
        self.channel.read_remaining()
        cgroup_usage = self._cgroup.usage() if self._cgroup is not None else CgroupUsage()
        if self._leave_cgroup():  # this proves it, however the cell ended
            self._proof = "cgroup"
        usage = self.processes.usage
        last_cpu_seconds = usage.cpu_seconds if usage is not None else 0.0
        # A template and what holds the memory of a call, or of the next one, which can be there before its process says so.
        templates = self.processes.forked or HELD if self.processes.is_template else 0
        stderr, stack = self.stdio.tail("stderr"), tuple[str, ...]()
        if cause_of(self._status) in FATAL_SIGNALS:
            stderr, stack = split(stderr)
        cell_exit = CellExit(
            status=self._status,
            cpu_seconds=max(self._cpu_seconds, cgroup_usage.cpu_seconds, last_cpu_seconds),
            memory_peak_bytes=max(self._memory_peak_bytes, cgroup_usage.memory_peak_bytes),
            killed=max(0, self._killed - templates),
            proof=self._proof,
            stderr=stderr,
            stack=stack,
            stdout=self.stdio.tail("stdout"),
            out_of_memory=cgroup_usage.out_of_memory_kills > 0,
            kernel=self._kernel_kill(),
            usage=usage,
        )
        self._close()
        self.named.set()
        self.ended.set_result(cell_exit)

    def _kernel_kill(self) -> KernelKill | None:
        """Return what the kernel says of the kill of a process of the cell; the keeper dies of one with its whole group."""
        if self._kernel_log is None or cause_of(self._status) not in ("SIGKILL", "lost"):
            return None
        return self._kernel_log.kill_of((*self.processes.workers, *self.processes.builders), self._born)

    def _close(self) -> None:
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self._fail_counts()
        self._leave_cgroup()  # where the cell failed to start
        self.channel.close()
        self.receiver = Receiver()  # its owner holds the cell: a cycle, which only a collection would free
        if self._handover is not None:
            self._handover.close()
        for end in (getattr(self, "_life", None), getattr(self, "_abort", None)):
            if end is not None and end.fileno() != -1:
                self.loop.remove_reader(end)
                end.close()
        self.stdio.close()
        self.processes.close()
        if self._spawned is not None:
            self.loop.remove_reader(self._spawned.pidfd)
            os.close(self._spawned.pidfd)


def _pair(kind: int) -> tuple[socket.socket, int]:
    """Return our end of a socket pair, which does not block, and the descriptor of the child's."""
    ours, child_ends = socket.socketpair(socket.AF_UNIX, kind)
    ours.setblocking(False)
    return ours, child_ends.detach()


def _sending_pair(kind: int) -> tuple[socket.socket, int]:
    """Return a pair of which the child's end cannot send: nothing, and so no descriptors either."""
    ours, child_end = _pair(kind)
    ours.shutdown(socket.SHUT_RD)
    return ours, child_end


def _has_exited(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))
