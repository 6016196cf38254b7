"""Who comes in over HTTP: the checks of every request, before anything of it is understood.

A page in a browser can send requests to loopback, and can make a name of its own lead there (DNS rebinding). So the
Host must be one of ours, and an Origin, which browsers add and hosts do not, must be ours too. The token keeps out
the other users and programs of the machine. Both are checked before a byte of the body is read.
The body is read here, within bounds of size and time, and handed on whole.

Why not the SDK's `transport_security` and `BearerAuthBackend`: they look at the first of several headers of a name
only, take an empty Origin for none, log what was sent, and have no bound on the time that a body takes.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Iterable, Sequence

from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

METHODS = ("GET", "POST", "DELETE")
"""Of an application that has no routes of its own."""
BODY_BYTES_MAX = 20 * 1024 * 1024  # 16 MiB of arguments, which is the daemon's bound, and what is around them
BODY_SECONDS = 30.0  # for all of it; on loopback 20 MiB need a fraction of a second


class AccessGuard:
    """An ASGI application around another."""

    def __init__(self, app: ASGIApp, *, authorities: Iterable[str], token: str, path: str) -> None:
        """Guard `app`.

        Args:
            app: The application.
            authorities: What a Host may say: name and port, as in "localhost:8137".
            token: The token that every request must show.
            path: The one path there is, such as "/mcp"; one that ends with "/" is the beginning of every path there is.
        """
        self._app = app
        self._hosts = frozenset(authority.encode() for authority in authorities)
        self._origins = frozenset(b"http://" + host for host in self._hosts)
        self._token = token.encode()
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # a web socket: closed, because it is not accepted
        if (refusal := self._stranger(scope) or self._unknown(scope)) is not None:
            await refusal(scope, receive, send)
            return
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body = await _body(scope, receive)
        if isinstance(body, Response):
            await body(scope, receive, send)
        elif body is not None:
            await self._app(scope, _replay(body, receive), send)

    def _stranger(self, scope: Scope) -> Response | None:
        """What to answer to a request that is not meant for this server, or comes from the page of another."""
        if any(host.lower() not in self._hosts for host in values(scope, b"host") or [b""]):
            return refused(
                421,
                "wrong_host",
                "The Host is not this server's.",
                "Use the address that it printed at its start.",
            )
        if any(origin.lower() not in self._origins for origin in values(scope, b"origin")):
            return refused(403, "wrong_origin", "Pages of other origins must not call this server.")
        if not self._has(scope.get("raw_path") or b""):
            return refused(404, "no_route", f"There is only {self._path}.")
        if scope["method"] not in (methods := self._methods(scope)):
            allowed = ", ".join(methods)
            return refused(405, "method_not_allowed", f"Only {allowed}.", headers={"Allow": allowed})
        return None

    def _unknown(self, scope: Scope) -> Response | None:
        """What to answer to a request that does not show the token."""
        if not shows(scope, self._token):
            return refused(
                401,
                "wrong_token",
                "Authorization: Bearer TOKEN is missing or wrong.",
                "Take the token from the file that the server named at its start.",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return None

    def _methods(self, scope: Scope) -> Sequence[str]:
        """The methods of all routes that lead to the path; those of the application where none does, which answers 404."""
        if not isinstance(self._app, Starlette):
            return METHODS
        found: set[str] = set()
        for route in self._app.routes:
            if isinstance(route, Route) and route.matches(scope)[0] is not Match.NONE:
                found |= route.methods or set()
        return [method for method in METHODS if method in found] or METHODS

    def _has(self, path: bytes) -> bool:
        own = self._path.encode()
        return path.startswith(own) if own.endswith(b"/") else path == own


def shows(scope: Scope, token: bytes) -> bool:
    """Whether a request has one Authorization, and that is the token."""
    said = values(scope, b"authorization")
    if len(said) != 1:
        return False
    scheme, _, shown = said[0].partition(b" ")
    return scheme.lower() == b"bearer" and hmac.compare_digest(shown.strip(), token)


def values(scope: Scope, name: bytes) -> list[bytes]:
    """Every header of that name; two of them are not one."""
    return [value for key, value in scope["headers"] if key == name]


def refused(
    status: int, reason: str, message: str, remedy: str = "", *, headers: dict[str, str] | None = None
) -> Response:
    """An answer in the shape of all errors, after which nothing more of the connection is read."""
    body = {"error": {"reason": reason, "message": message, "remedy": remedy}}
    return JSONResponse(body, status, {**(headers or {}), "Connection": "close"})


async def _body(scope: Scope, receive: Receive) -> bytes | Response | None:
    """The body; what to answer where it is too much or too slow; None where the client has gone."""
    too_large = refused(413, "too_large", f"A body has at most {BODY_BYTES_MAX} bytes.")
    if any(int(length) > BODY_BYTES_MAX for length in values(scope, b"content-length") if length.isdigit()):
        return too_large
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return None
                body += message.get("body", b"")
                if len(body) > BODY_BYTES_MAX:
                    return too_large
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        return refused(408, "too_slow", f"The body did not arrive within {BODY_SECONDS:g} s.")


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that begins with the body."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay
