"""A client of one MCP server on stdio, without threads and without an event loop.

A request waits for its response by `request`, or is begun, and its response taken when it has come: who waits for several
selects on `reading` and `writing`, and has `exchange` read and write. What the server sends in between is handled there: a
ping is answered, notifications and requests go to the `ServerListener`. Everything that is written waits in one
buffer until the server reads it, so that a server that writes without reading cannot block its client.

The end of the server is that of its process, seen by a pidfd: a program that it has started may keep its output open.

The server is a stranger's program. A line that is no message is output of it. A response counts only while its request is
open, so neither a second one nor one to another number has an effect. Messages and what waits for the server are bounded.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, cast

from toolcell._version import VERSION

PROTOCOL: Final = "2025-06-18"
"""The newest version of the protocol with `initialize`, which nearly every server speaks."""
STATELESS: Final = "2026-07-28"
"""The version without, in which every request says who asks: for servers that refuse the greeting."""
META: Final = "io.modelcontextprotocol/"
UNSUPPORTED: Final = -32022
"""The error of a greeting of a server that speaks other versions."""
CHANGES: Final = {
    "tools": "toolsListChanged",
    "resources": "resourcesListChanged",
    "prompts": "promptsListChanged",
}
"""What has a list, and the name of a subscription to its changes."""
MESSAGE_BYTES_MAX: Final = 32 * 2**20
"""Of one message: twice the longest result that the daemon takes, as base64 and escapes make it longer."""
WAITING_BYTES_MAX: Final = 64 * 2**20
"""Of what the server has not read: the longest arguments and an answer to each of its requests."""
TURNS_MAX: Final = 100
"""Reads of what a server has said since its last call, of a pipe's length each; it may go on while it is read."""
NOISE_BYTES_MAX: Final = 2000
"""Of a line that is no message, as it is shown."""
EXIT_SECONDS: Final = 1.0
"""For a server that has closed its output to exit."""
CLOSE_SECONDS: Final = 0.9
"""After each step of the end that asks: two of them are within the daemon's grace of two seconds."""
KILLED_SECONDS: Final = 20.0
"""For the kernel to end a server that was killed, which takes as long as others have the processors."""
NO_METHOD: Final = -32601

_encoded: Final = json.JSONEncoder(separators=(",", ":")).encode  # `json.dumps` makes one for each message


class RpcError(Exception):
    """A request failed, by the server's own account or by that of the host that it asked."""

    def __init__(self, code: object, message: object) -> None:
        self.code = code if type(code) is int else 0
        super().__init__(str(message or "it failed without a reason"))


class ServerExited(Exception):
    """The process of the server has ended. `status` is as in `subprocess`: negative for a signal."""

    def __init__(self, program: str, status: int) -> None:
        self.status = status
        how = f"with status {status}" if status >= 0 else f"by {signal.strsignal(-status) or 'a signal'}"
        super().__init__(f"the MCP server {program} ended {how}")


class ServerBroken(Exception):
    """The server cannot be started, or does what is no MCP."""


class ServerListener(Protocol):
    """What a server's own messages are for."""

    def on_notification(self, method: str, params: Mapping[str, Any]) -> None:
        """Hear a notification of the server; what it says is untrusted."""
        ...

    def on_request(self, number: object, method: str, params: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Answer a request of the server, or return None to answer it later by `ServerConnection.answer`. Raises `RpcError`."""
        ...


class ServerConnection:
    """A server process that has the variables of this one, and the conversation with it.

    No shell reads its command. `host` gets what it says by itself.
    """

    def __init__(self, command: Sequence[str], directory: str, host: ServerListener) -> None:
        self._command, self._directory, self._host = command, directory, host
        self._number = 0  # of the last request
        self.capabilities: Mapping[str, Any] = {}  # of the server, as it said when it was greeted last
        self._envelope: Mapping[str, Any] = {}  # of every request; empty where there was a greeting
        # What is read into: an object of this length for each read would be mapped and unmapped
        self._buffer = memoryview(bytearray(2**18))
        # The mutable state of one process; `start` begins it anew.
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1  # of the process, as long as there is one
        self._received = bytearray()  # what has no line end yet
        self._waiting = bytearray()  # what the server has not read yet
        self._open: set[int] = set()  # requests without a response
        self.arrived: dict[int, Mapping[str, Any]] = {}  # responses that are not taken, by their requests

    def start(self) -> None:
        """Start the server and greet it. Raises `ServerBroken`, `ServerExited` and `RpcError`."""
        self._received.clear()
        self._waiting.clear()
        self._open.clear()
        self.arrived.clear()
        program = self._command[0]
        try:
            process = self._process = subprocess.Popen(
                self._command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=self._directory
            )
        except (OSError, ValueError) as error:
            raise ServerBroken(f"{program} cannot be started: {_reason(error)}") from None
        self._pidfd = os.pidfd_open(process.pid)
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
        self._envelope = {}
        about = {"name": "toolcell", "version": VERSION}
        able: dict[str, Any] = {"roots": {}, "elicitation": {}, "sampling": {}}
        try:
            said = self.request(
                "initialize", {"protocolVersion": PROTOCOL, "capabilities": able, "clientInfo": about}
            )
        except RpcError as error:
            if error.code != UNSUPPORTED:
                raise
            self._envelope = {
                f"{META}protocolVersion": STATELESS,
                f"{META}clientInfo": about,
                f"{META}clientCapabilities": able,
                f"{META}logLevel": "info",
            }
            said = self.request("server/discover", {})
        else:
            self._send({"method": "notifications/initialized"})
        found = said.get("capabilities")
        self.capabilities = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
        if self._envelope:  # the answer to it comes when the server ends it, and is nothing to wait for
            wanted = {change: True for each, change in CHANGES.items() if each in self.capabilities}
            self.begin("subscriptions/listen", {"notifications": wanted})

    def refresh(self) -> bool:
        """Read what the server has said since the last request; return False if it has exited meanwhile."""
        if self._process is None:
            return False
        try:
            for _ in range(TURNS_MAX):
                if not self.turn(0):
                    break
        except (ServerExited, ServerBroken):
            self.close()
            return False
        return True

    def request(
        self, method: str, params: Mapping[str, Any], *, with_progress: bool = False
    ) -> Mapping[str, Any]:
        """Make a request and wait for its result.

        Args:
            method: Its method.
            params: Its parameters.
            with_progress: Whether the server may tell the progress of it. Default: False.

        Raises:
            RpcError: The server answered with an error.
            ServerExited: It has ended.
            ServerBroken: It does what is no MCP.
        """
        number = self.begin(method, params, with_progress=with_progress)
        while (response := self.take(number)) is None:
            self.turn(None)
        return result_of_response(response)

    def take(self, number: int) -> Mapping[str, Any] | None:
        """Return the response to a request, once; None while there is none."""
        return self.arrived.pop(number, None)

    def cancel(self, number: int, reason: str) -> int:
        """Tell the server that a request is cancelled, and ask whether it still reads; return the number of that ping.

        Nothing says that what it was at has stopped: most servers never answer a request that was cancelled.

        Args:
            number: That of the request, whose response is taken as before if there is one.
            reason: Why, for its log.
        """
        cancelled = {"requestId": number, "reason": reason}
        self._send({"method": "notifications/cancelled", "params": cancelled})
        return self.begin("server/discover" if self._envelope else "ping", {})

    def forget(self, number: int) -> None:
        """Ignore the response to a request that comes from now on."""
        self._open.discard(number)
        self.arrived.pop(number, None)

    def answer(self, number: object, result: Mapping[str, Any] | RpcError) -> None:
        """Answer a request of the server, for which `ServerListener.on_request` has returned None."""
        self._send({"id": number, **_answered(result)})

    @property
    def is_running(self) -> bool:
        """Whether there is a process, as far as was read."""
        return self._process is not None

    @property
    def waiting_bytes(self) -> int:
        """What waits for the server to read it."""
        return len(self._waiting)

    @property
    def reading(self) -> tuple[int, int]:
        """The descriptors that tell what there is to read: its output, and its end; only of a server that is running."""
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.fileno(), self._pidfd

    @property
    def writing(self) -> int:
        """The descriptor to write to, as long as something waits; only of a server that is running."""
        assert self._process is not None
        assert self._process.stdin is not None
        return self._process.stdin.fileno()

    def close(self) -> None:
        """End the server: close its input, wait, send SIGTERM, wait, kill it, and reap it. Idempotent."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        for number, seconds in (
            (None, CLOSE_SECONDS),
            (signal.SIGTERM, CLOSE_SECONDS),
            (signal.SIGKILL, KILLED_SECONDS),
        ):
            if number is not None:
                process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
                break
        process.stdout.close()
        os.close(self._pidfd)
        self._process = None

    def kill(self) -> None:
        """End the server at once, so that it says nothing more, and reap it."""
        if self._process is not None:
            self._process.kill()
            self.close()

    def begin(self, method: str, params: Mapping[str, Any], *, with_progress: bool = False) -> int:
        """Make a request, and return its number, which is that of its progress, too; see `request`."""
        number = self._number = self._number + 1
        if with_progress or self._envelope:
            token = {"progressToken": number} if with_progress else {}
            params = {**params, "_meta": {**self._envelope, **token}}
        self._open.add(number)
        self._send({"id": number, "method": method, "params": params})
        return number

    def _send(self, message: Mapping[str, Any]) -> None:
        written = _encoded({"jsonrpc": "2.0", **message}).encode()
        if len(self._waiting) + len(written) > WAITING_BYTES_MAX:
            raise ServerBroken(
                f"the MCP server {self._command[0]} does not read what it is sent: {WAITING_BYTES_MAX >> 20} MiB wait"
            )
        waits = bool(self._waiting)
        self._waiting += written
        self._waiting += b"\n"
        if not waits:  # most are taken at once, and then nothing has to be selected on
            self._write()

    def _write(self) -> None:
        try:
            del self._waiting[: os.write(self.writing, self._waiting[: 2**16])]
        except BlockingIOError:
            pass
        except BrokenPipeError:  # it has closed its input, and how it ends its end says
            self._waiting.clear()

    def turn(self, seconds: float | None) -> bool:
        """Write what can be written, then read and handle what there is; return whether something was read.

        Args:
            seconds: How long to wait for either; None for ever.

        Raises:
            ServerExited: The server has ended.
            ServerBroken: It does what is no MCP.
        """
        writing = [self.writing] if self._waiting else []
        readable, writable, _ = select.select(self.reading, writing, [], seconds)
        return self.exchange(readable=bool(readable), writable=bool(writable))

    def exchange(self, *, readable: bool, writable: bool) -> bool:
        """Write if that is possible now, then read and handle what there is; return whether something was read.

        Args:
            readable: Whether there is something to read, by one of `reading`.
            writable: Whether the server takes what waits for it.

        Raises:
            ServerExited: The server has ended.
            ServerBroken: It does what is no MCP.
        """
        process = self._process
        assert process is not None
        if writable:
            self._write()
        if not readable:
            return False
        try:  # of one that has ended, too: it may have answered before
            count = os.readv(self.reading[0], [self._buffer])
        except BlockingIOError:
            if process.poll() is not None:
                raise self._ended(process) from None
            return False
        if not count:
            raise self._ended(process)
        self._take(bytes(self._buffer[:count]))
        return True

    def _ended(self, process: subprocess.Popen[bytes]) -> Exception:
        try:
            return ServerExited(self._command[0], process.wait(EXIT_SECONDS))
        except subprocess.TimeoutExpired:
            return ServerBroken(f"the MCP server {self._command[0]} closed its output and goes on")

    def _take(self, data: bytes) -> None:
        *ended, rest = data.split(b"\n")
        for end in ended:
            self._received += end
            line = bytes(self._received)
            self._received.clear()
            if len(line) > MESSAGE_BYTES_MAX:
                break
            self._handle(line)
        else:
            self._received += rest
            if len(self._received) <= MESSAGE_BYTES_MAX:
                return
        raise ServerBroken(
            f"the MCP server {self._command[0]} sent a message of more than {MESSAGE_BYTES_MAX >> 20} MiB"
        )

    def _handle(self, line: bytes) -> None:
        try:
            message: object = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            if line.strip():  # a banner, or what its author prints
                self.print(line)
            return
        fields = cast("dict[str, Any]", message)
        number, method = fields.get("id"), fields.get("method")
        if isinstance(method, str):
            params = fields.get("params")
            given = cast("dict[str, Any]", params) if isinstance(params, dict) else {}
            if number is None:
                self._host.on_notification(method, given)
            else:
                self._on_request(number, method, given)
        elif type(number) is int and number in self._open:
            self._open.discard(number)
            self.arrived[number] = fields

    def print(self, line: bytes) -> None:
        """Print a line as the server would to stderr, cut at its bound."""
        os.write(2, line[:NOISE_BYTES_MAX] + b"\n")

    def _on_request(self, number: object, method: str, params: Mapping[str, Any]) -> None:
        result: Mapping[str, Any] | RpcError | None
        try:
            result = {} if method == "ping" else self._host.on_request(number, method, params)
        except RpcError as error:
            result = error
        if result is not None:
            self.answer(number, result)


def asked_for(response: Mapping[str, Any]) -> tuple[Mapping[str, Any], object] | None:
    """Return what a server without a greeting needs before it can answer, by its names, and what it wants to hear with it.

    Since 2026-07-28 that is the result of a request, which is made once more with the answers. None for any other response.
    """
    result = response.get("result")
    said = cast("dict[str, Any]", result) if isinstance(result, dict) else {}
    requests = said.get("inputRequests")
    if said.get("resultType") != "input_required" or not isinstance(requests, dict):
        return None
    return cast("dict[str, Any]", requests), said.get("requestState")


def _answered(result: Mapping[str, Any] | RpcError) -> Mapping[str, Any]:
    if isinstance(result, RpcError):
        return {"error": {"code": result.code or NO_METHOD, "message": str(result)}}
    return {"result": result}


def result_of_response(response: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the result that a response has. Raises `RpcError`."""
    if (error := response.get("error")) is not None:
        said = cast("dict[str, Any]", error) if isinstance(error, dict) else {}
        raise RpcError(said.get("code"), said.get("message"))
    result = response.get("result")
    return cast("dict[str, Any]", result) if isinstance(result, dict) else {}


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
