"""Who may speak to the daemon: the directory, the lock, the tokens, and the check of every RPC.

The runtime directory belongs to the user alone (0700), and so do its files (0600). The lock on
`daemon.lock` is taken before the socket is bound and held for life, because a second gRPC server
would take over a live unix socket path without a word. A stale socket or lock file is no
obstacle: the kernel dropped the lock with the process that held it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hmac
import os
import secrets
import stat
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import (  # pyright: ignore[reportMissingTypeStubs]  # it has none
    error_details_pb2,
    status_pb2,
)

from toolcell import _paths

__all__ = ["AccessError", "AlreadyRunning", "RuntimeDirectory", "TokenInterceptor"]

TOKEN_BYTES: Final = 32
OPERATOR_METHODS: Final = "/toolcell.v1.Operator/"
FIRST_MESSAGE_SECONDS: Final = 10.0
"""Who opens a stream has something to say."""


class AccessError(Exception):
    """The runtime directory cannot be used; the message says why and what to do."""


class AlreadyRunning(Exception):
    """Another daemon holds the lock."""


class RuntimeDirectory:
    """The runtime directory of a running daemon: its lock, its tokens, its socket's path."""

    def __init__(self, socket: str) -> None:
        self.socket = socket
        self._lock = -1
        self.agent_token = ""
        self.operator_token = ""

    def take(self) -> None:
        """Make the directory ours, take the lock, write new tokens. Raises `AccessError`, `AlreadyRunning`."""
        directory = os.path.dirname(self.socket)
        if len(os.fsencode(self.socket)) > 100:  # sun_path has 108 bytes, and gRPC adds to it
            raise AccessError(
                f"{self.socket} is too long for a unix socket; set TOOLCELL_SOCKET to a shorter path"
            )
        try:
            _make_private(directory)
            self._lock = os.open(
                _paths.lock_path(self.socket), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
        except OSError as error:
            raise AccessError(
                f"{directory} cannot be used: {error.strerror}; set TOOLCELL_SOCKET to another place"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            self._lock = -1
            raise AlreadyRunning(self.socket) from None
        os.truncate(self._lock, 0)
        os.write(self._lock, f"{os.getpid()}\n".encode())
        _unlink(self.socket)  # no daemon serves it: this one holds the lock
        self.agent_token = _write_token(_paths.agent_token_path(self.socket))
        self.operator_token = _write_token(_paths.operator_token_path(self.socket))

    def leave(self) -> None:
        """Remove what is ours; the lock file stays, as removing it would let two hold it."""
        if self._lock == -1:
            return
        for path in (
            self.socket,
            _paths.agent_token_path(self.socket),
            _paths.operator_token_path(self.socket),
        ):
            _unlink(path)
        os.close(self._lock)
        self._lock = -1


def _make_private(directory: str) -> None:
    os.makedirs(directory, mode=0o700, exist_ok=True)
    found = os.stat(directory, follow_symlinks=False)
    if not stat.S_ISDIR(found.st_mode):
        raise AccessError(
            f"{directory} is not a directory; remove it, or set TOOLCELL_SOCKET to another place"
        )
    if found.st_uid != os.geteuid():
        raise AccessError(
            f"{directory} belongs to user {found.st_uid}, not to you; set TOOLCELL_SOCKET to another place"
        )
    if found.st_mode & 0o077:
        raise AccessError(
            f"{directory} is open to others (mode {found.st_mode & 0o777:o}); chmod 700 {directory}"
        )


def _write_token(path: str) -> str:
    token = secrets.token_urlsafe(TOKEN_BYTES)
    _unlink(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(token)
    return token


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


class TokenInterceptor(grpc.aio.ServerInterceptor):
    """Lets an RPC through that shows the right token."""

    def __init__(self, runtime_directory: RuntimeDirectory) -> None:
        self._agent = f"Bearer {runtime_directory.agent_token}".encode()
        self._operator = f"Bearer {runtime_directory.operator_token}".encode()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Check the token before the handler is even looked up."""
        shown = _shown(handler_call_details.invocation_metadata)
        if hmac.compare_digest(shown, self._operator):
            return await continuation(handler_call_details)
        for_operators = handler_call_details.method.startswith(OPERATOR_METHODS)
        if hmac.compare_digest(shown, self._agent):
            if not for_operators:
                return await continuation(handler_call_details)
            return _refusing(
                grpc.StatusCode.PERMISSION_DENIED,
                "this needs the operator's token, from operator.token beside the socket.",
            )
        which = "operator.token" if for_operators else "agent.token"
        what = "no token was shown" if not shown else "the token is not this daemon's"
        return _refusing(
            grpc.StatusCode.UNAUTHENTICATED,
            f"{what}; read {which} beside the socket and send it as authorization: Bearer.",
        )

    def is_operator(self, context: grpc.aio.ServicerContext[Any, Any]) -> bool:
        """Whether the caller showed the operator's token."""
        return hmac.compare_digest(_shown(context.invocation_metadata()), self._operator)


def _shown(metadata: Any) -> bytes:
    for key, value in metadata or ():
        if key == "authorization":
            return value.encode(errors="replace") if isinstance(value, str) else bytes(value)
    return b""


def _refusing(code: grpc.StatusCode, message: str) -> grpc.RpcMethodHandler[Any, Any]:
    packed = AnyMessage()
    packed.Pack(error_details_pb2.ErrorInfo(reason="UNAUTHENTICATED", domain="toolcell"))
    number: Any = code.value
    status = status_pb2.Status(code=number[0], message=message, details=[packed])
    trailing = (("grpc-status-details-bin", status.SerializeToString()),)

    async def refuse(_: Any, context: Any) -> None:
        # Its first message is read, and no other: grpc tells a client that still writes when its stream
        # ends of an internal error, and not of the refusal.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_MESSAGE_SECONDS):
                await context.read()
        await context.abort(code, message, trailing_metadata=trailing)

    # A stream on both sides is a way to end that fits every method.
    return grpc.stream_stream_rpc_method_handler(refuse)
