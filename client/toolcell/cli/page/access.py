"""Who may look and who may act: links that are good once, sessions by cookie, and the guard of every request.

The link has its secret behind the "#", which browsers neither send nor pass on; the page posts it, and gets a cookie that
scripts cannot read. Cookies are shared by all servers of a host, so the name of this one is of this process alone.

A browser sends a cookie to every server of the host, whatever its port, and with what pages of those servers ask for. So
the cookie alone is worth nothing: each request shows a token as well, which only our page is told, and a browser must call
the request one of our own page. What changes something needs our Origin, too, and a session that was opened to act.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolcell import _paths
from toolcell.adapters.http.auth import AccessGuard, refused, shows, values
from toolcell.client import Unavailable
from toolcell.client._grpc.access import read_token

ROOT: Final = "/"
OPERATOR: Final = "/api/operator/"
"""What the paths of operators begin with."""
OPEN: Final = f"{OPERATOR}open"
FORGERY: Final = "x-toolcell-page"
"""The header with the token against forgery."""
LINK_SECONDS: Final = 600.0
SESSION_SECONDS: Final = 8 * 3600.0
IDLE_SECONDS: Final = 1800.0
"""Without a request; an open page asks all the time."""
SESSIONS_MAX: Final = 16
"""Of browsers at once; the oldest one ends for a new one."""
SECRET_BYTES: Final = 32
COOKIES_CHARACTERS_MAX: Final = 4096
HEADERS: Final = {
    # Nothing is loaded from elsewhere, nothing runs that is not in a file of ours, and no page may embed this one.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass(slots=True)
class PageSession:
    """A browser that has opened a link, or a program that shows the operator's token."""

    may_act: bool
    """Whether it may change anything."""
    forgery: str = field(default_factory=lambda: secrets.token_urlsafe(SECRET_BYTES))
    """What each of its requests shows besides the cookie."""
    ends: float = field(default_factory=lambda: time.monotonic() + SESSION_SECONDS)
    used: float = field(init=False)

    def __post_init__(self) -> None:
        self.used = time.monotonic()

    @property
    def over(self) -> bool:
        """Whether it is too old, or has not been used for too long."""
        now = time.monotonic()
        return now >= self.ends or now >= self.used + IDLE_SECONDS


class PageAccess:
    """The links and sessions of one process; nothing of them is written down."""

    def __init__(self) -> None:
        self.cookie = f"toolcell_{secrets.token_hex(8)}"
        """The name of the cookie."""
        self._links: dict[str, tuple[bool, float]] = {}  # by digest: whether it may act, and when it ends
        self._sessions: dict[str, PageSession] = {}  # by digest, the oldest first

    def link(self, *, may_act: bool) -> str:
        """Make the secret of a new link."""
        secret = secrets.token_urlsafe(SECRET_BYTES)
        self._links[_digest(secret)] = may_act, time.monotonic() + LINK_SECONDS
        return secret

    def open(self, secret: str) -> tuple[str, PageSession] | None:
        """Return the value of the cookie and the session that a link opens; None if it was used, is too old, or none."""
        may_act, ends = self._links.pop(_digest(secret), (False, 0.0))
        if time.monotonic() >= ends:
            return None
        self._sessions = {key: each for key, each in self._sessions.items() if not each.over}
        while len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        value = secrets.token_urlsafe(SECRET_BYTES)
        session = self._sessions[_digest(value)] = PageSession(may_act)
        return value, session

    def close(self, session: PageSession) -> None:
        """End a session and its stream; harmless twice."""
        session.ends = 0.0
        self._sessions = {key: each for key, each in self._sessions.items() if each is not session}

    def find(self, scope: Scope) -> PageSession | None:
        """Return the session of a request's cookie."""
        said = b"; ".join(values(scope, b"cookie")).decode("latin-1")
        try:
            cookies = SimpleCookie(said[:COOKIES_CHARACTERS_MAX])
        except CookieError:
            return None
        if (shown := cookies.get(self.cookie)) is None:
            return None
        session = self._sessions.get(_digest(shown.value))
        if session is None or session.over:
            return None
        session.used = time.monotonic()
        return session


def _digest(secret: str) -> str:
    """What a secret is looked up by, so that the time of the look-up tells nothing of it."""
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


class PageGuard(AccessGuard):
    """Requires nothing for the files of the page, a session or the operator's token for its routes, and the token of hosts for the gateway's."""

    def __init__(
        self,
        app: ASGIApp,
        access: PageAccess,
        *,
        authorities: Iterable[str],
        token: str,
        socket: Callable[[], str],
    ) -> None:
        """Guard `app`.

        Args:
            app: The application.
            access: The links and sessions.
            authorities: What a Host may say.
            token: The token of hosts, for the routes of the gateway.
            socket: Returns the daemon's socket, beside which the operator's token lies.
        """
        super().__init__(app, authorities=authorities, token=token, path=ROOT)
        self._access = access
        self._socket = socket

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name.encode(): value.encode() for name, value in HEADERS.items()}
                others = [pair for pair in message.get("headers", ()) if pair[0].lower() not in own]
                message = {**message, "headers": [*others, *own.items()]}
            await send(message)

        await super().__call__(scope, receive, with_headers)

    def _unknown(self, scope: Scope) -> Response | None:
        path: str = scope["path"]
        if not path.startswith("/api/"):
            return None  # the files of the page, which hold nothing of this daemon
        if not path.startswith(OPERATOR):
            return super()._unknown(scope)
        if path == OPEN:
            return None  # the link is in the body
        if values(scope, b"authorization"):
            return self._with_token(scope)
        return self._with_cookie(scope)

    def _with_token(self, scope: Scope) -> Response | None:
        try:
            token = read_token(_paths.operator_token_path(self._socket()))
        except Unavailable as error:
            return refused(503, "unavailable", error.message, error.remedy)
        if not shows(scope, token.encode()):
            return refused(
                401,
                "wrong_token",
                "That is not the operator's token.",
                "It is in operator.token, beside the socket.",
            )
        scope["page_session"] = PageSession(may_act=True)
        return None

    def _with_cookie(self, scope: Scope) -> Response | None:
        # Browsers say from where a page asks; what says nothing is no browser, and has no cookie of ours.
        if any(site not in (b"same-origin", b"none") for site in values(scope, b"sec-fetch-site")):
            return refused(403, "wrong_origin", "Pages of other origins must not call this server.")
        session = self._access.find(scope)
        if session is None:
            return refused(
                401,
                "no_session",
                "The session has ended, or was opened by another process.",
                "Open a new link: toolcell ui",
            )
        shown = values(scope, FORGERY.encode())
        if len(shown) != 1 or not hmac.compare_digest(shown[0], session.forgery.encode()):
            return refused(
                403, "forged", f"The header {FORGERY} is missing or wrong.", "Open a new link: toolcell ui"
            )
        scope["page_session"] = session
        return None if scope["method"] == "GET" else _must_not_act(scope, session)


def _must_not_act(scope: Scope, session: PageSession) -> Response | None:
    """Return the refusal of a request that would change something; None for one that may."""
    if not values(scope, b"origin"):
        return refused(403, "wrong_origin", "An action needs an Origin, which every browser sends.")
    if not session.may_act and scope["path"] != f"{OPERATOR}close":
        return refused(
            403,
            "read_only",
            "This page was opened to look, not to act.",
            "Open one that may act: toolcell ui --operate",
        )
    return None
