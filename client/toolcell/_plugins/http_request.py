"""The strategy `http`: one request, to the hosts of the URL template or those that `allowedHosts` lists.

A value is URL-encoded wherever it stands, so it changes neither the host nor the path around it; what the encoding
leaves, `.` and `..`, is refused in a path. A raw parameter may change them, so the finished URL is held against the
list of hosts, as the target of each redirect is. The cell has the same list, and refuses what this module overlooks.

The worker's main thread waits on the socket, so that an abort interrupts it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from socket import socket
from typing import Any, Final
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

from toolcell import ToolContext, ToolError
from toolcell._plugins.models import HttpHandler
from toolcell._plugins.strategy import Strategy
from toolcell._plugins.values import FieldError, checked, fill, names_of, text_of
from toolcell._results.json_value import to_json

RESPONSE_BYTES_MAX: Final = 10 * 2**20  # as much as is kept of a program's output
CHUNK_BYTES: Final = 64 * 1024
REDIRECTS_MAX: Final = 5
TIMER_SECONDS: Final = 5
"""What the timer of the call has beyond the time-out, so that the message is the one of this module."""
DEFAULT_PORTS: Final = {"http": 80, "https": 443}

_AUTHORITY = re.compile(r"https?://([^/?#]*)", re.IGNORECASE)
_HOST = re.compile(
    r"(?:(?:\*\.)?[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?\.?|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?", re.IGNORECASE
)
_NOT_OF_A_URL = re.compile(r"[^\x21-\x7e]|[\"<>\\^`{|}#]")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OWN_HEADERS = frozenset({"connection", "content-length", "expect", "host", "te", "trailer", "transfer-encoding", "upgrade"})  # fmt: skip
_CHARSET = re.compile(r"charset=\"?([\w-]+)", re.IGNORECASE)
# Beside UTF-8
_CHARSETS = frozenset({"ascii", "iso-8859-1", "latin-1", "us-ascii", "utf-16", "windows-1252"})


def make(handler: HttpHandler, properties: Mapping[str, Any]) -> Strategy:
    """Return what runs a tool of this handler.

    Args:
        properties: The properties of the tool's inputSchema.

    Raises:
        FieldError: The URL, the hosts or the headers cannot be used.
    """
    names = frozenset(names_of("handler.url", handler.url, properties))
    hosts = _hosts(handler, names)
    _check_headers(handler.headers)
    raw = frozenset(handler.raw_params)

    def execute(arguments: Mapping[str, Any], _: ToolContext) -> str:
        values = checked(arguments, properties)
        rest = {name: value for name, value in values.items() if name not in names}
        texts = {name: text_of(value) for name, value in values.items()}
        encoded = {name: text if name in raw else quote(text, safe="") for name, text in texts.items()}
        url = _filled(handler.url, encoded)
        headers, body = dict(handler.headers), None
        if handler.method == "GET":
            url += _query(url, rest)
        else:
            body = to_json(rest)
            headers = {"Content-Type": "application/json", **headers}
        deadline = _Deadline(handler.timeout)
        request = _Request(handler.method, _checked_url(url, hosts), headers, body)
        for _hop in range(REDIRECTS_MAX + 1):
            answer = _sent(request, deadline)
            if not isinstance(answer, str):
                return _text(*answer)
            request = request.redirected(answer, hosts)
        raise ToolError(f"{request.url.netloc} redirects more than {REDIRECTS_MAX} times.")

    # A GET changes nothing, by its definition.
    options = {"network": list(hosts), "programs": False, "timeout": handler.timeout / 1000 + TIMER_SECONDS}
    return Strategy(execute, {**options, "read_only": True} if handler.method == "GET" else options)


# What the file says


def _hosts(handler: HttpHandler, names: frozenset[str]) -> tuple[str, ...]:
    """Return the entries of the hosts that the tool may reach. Raises `FieldError`."""
    for name in handler.raw_params:
        if name not in names:
            raise FieldError("handler.rawParams", f"{name} does not stand in the URL as {{{{{name}}}}}")
    if handler.raw_params and not handler.allowed_hosts:
        raise FieldError("handler.rawParams", "needs allowedHosts, because the values may name any host")
    for host in handler.allowed_hosts:
        if not _HOST.fullmatch(host):
            raise FieldError(
                "handler.allowedHosts",
                f"{host!r} is no host; write api.example.org, *.example.org or host:port",
            )
    if found := _NOT_OF_A_URL.search(fill(handler.url, dict.fromkeys(names, "x"))):
        raise FieldError("handler.url", f"has {found[0]!r}, which has to be encoded or left out")
    authority = _AUTHORITY.match(handler.url)
    if authority is None:
        if any(handler.url.startswith(f"{{{{{name}}}}}") for name in handler.raw_params):
            return handler.allowed_hosts
        raise FieldError(
            "handler.url", "should begin with http:// or https://, or with a parameter of rawParams"
        )
    if "@" in authority[1]:
        raise FieldError("handler.url", "has a user name; write it into headers, as Authorization")
    if "{{" in authority[1]:
        if not handler.allowed_hosts:
            raise FieldError("handler.url", "has a parameter in its host; list the hosts in allowedHosts")
        return handler.allowed_hosts
    if not _HOST.fullmatch(authority[1]) or "*" in authority[1]:
        raise FieldError("handler.url", f"{authority[1]!r} is no host")
    own = _entry(authority[0])
    if handler.allowed_hosts and own not in handler.allowed_hosts:
        return (own, *handler.allowed_hosts)
    return handler.allowed_hosts or (own,)


def _entry(url: str) -> str:
    """Return the entry of a list of hosts that means the host of a URL. Raises `FieldError`."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise FieldError("handler.url", f"{url!r} cannot be read: {error}") from None
    host = (parts.hostname or "").removesuffix(".")
    written = f"[{host}]" if ":" in host else host
    return written if port is None or port in DEFAULT_PORTS.values() else f"{written}:{port}"


def _check_headers(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        field = f"handler.headers.{name[:60]}"
        if not _HEADER.fullmatch(name) or name.lower() in _OWN_HEADERS:
            raise FieldError(field, "cannot be sent as a header by a tool")
        if not value.isprintable() or not value.isascii():
            raise FieldError(field, "should be printable ASCII in one line")
        if "{{" in value:
            raise FieldError(field, "takes no parameters")


# The URL


def _filled(template: str, encoded: Mapping[str, str]) -> str:
    """Return the URL; parts of the query whose parameter is absent are left out. Raises `ToolError`."""
    path, mark, query = template.partition("?")
    try:
        url = fill(path, encoded)
    except KeyError as missing:
        raise ToolError(f"Missing required parameter: {missing.args[0]}") from None
    for name, text in encoded.items():
        if not text and f"{{{{{name}}}}}" in path:
            raise ToolError(f"Parameter {name} is empty, and stands in the path of the URL.")
    parts: list[str] = []
    for part in query.split("&"):
        try:
            parts.append(fill(part, encoded))
        except KeyError:
            continue
    return f"{url}{mark}{'&'.join(parts)}" if any(parts) else url


def _query(url: str, values: Mapping[str, Any]) -> str:
    """Return what of the query a GET adds for these values."""
    pairs = [f"{quote(name, safe='')}={quote(text_of(value), safe='')}" for name, value in values.items()]
    return ("&" if "?" in url else "?") + "&".join(pairs) if pairs else ""


def _checked_url(url: str, hosts: Sequence[str]) -> SplitResult:
    """Return a URL in its parts. Raises `ToolError` for one that the tool may not request."""
    shown = f"{url[:200]!r}"
    scheme, colon, _ = url.partition("://")
    if not colon or scheme.lower() not in DEFAULT_PORTS:
        raise ToolError(f"Invalid URL scheme: {shown} begins with neither http:// nor https://.")
    if found := _NOT_OF_A_URL.search(url):
        raise ToolError(f"The URL {shown} has {found[0]!r}, which has to be encoded.")
    try:
        parts = urlsplit(url)
        port = DEFAULT_PORTS[parts.scheme] if parts.port is None else parts.port
    except ValueError as error:
        raise ToolError(f"The URL {shown} cannot be read: {error}.") from None
    if "@" in parts.netloc:
        raise ToolError(f"The URL {shown} has a user name or a password.")
    if not _HOST.fullmatch(parts.netloc) or "*" in parts.netloc:
        raise ToolError(f"The URL {shown} has {parts.netloc!r} as its host, which is none.")
    host = (parts.hostname or "").removesuffix(".")
    if not any(_means(entry, host, port) for entry in hosts):
        raise ToolError(
            f"The URL {shown} leads to the host {host}:{port}; this tool may reach {', '.join(hosts)}."
        )
    for segment in parts.path.split("/"):
        # Some servers decode a slash before they look for dots.
        if not {".", ".."}.isdisjoint(re.split(r"[/\\]", unquote(segment))):
            raise ToolError(
                f"The URL {shown} has the path segment {unquote(segment)!r}, which leads to another path."
            )
    return parts


def _means(entry: str, host: str, port: int) -> bool:
    """Whether an entry of a list of hosts means a host and port, as in the lists of the configuration."""
    name, colon, digits = entry.lower().rpartition(":")
    if not colon or digits.endswith("]"):
        name, digits = entry.lower(), ""
    if port != int(digits) if digits else port not in DEFAULT_PORTS.values():
        return False
    name = name.strip("[]").removesuffix(".")
    return host.endswith(name[1:]) and host != name[2:] if name.startswith("*.") else host == name


# The request


class _Deadline:
    def __init__(self, milliseconds: int) -> None:
        self._milliseconds = milliseconds
        self._end = time.monotonic() + milliseconds / 1000

    def left(self) -> float:
        """Return the seconds that are left. Raises `ToolError` if there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise self.passed()
        return left

    def passed(self) -> ToolError:
        return ToolError(f"Request timed out after {self._milliseconds}ms")


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    url: SplitResult
    headers: Mapping[str, str]
    body: bytes | None

    def redirected(self, location: str, hosts: Sequence[str]) -> _Request:
        """Return the request that a redirect asks for. Raises `ToolError` if the tool may not send it."""
        status, _, target = location.partition(" ")
        try:
            joined = urljoin(self.url.geturl(), target)
        except ValueError as error:
            raise ToolError(
                f"{self.url.netloc} redirects to {target[:200]!r}, which cannot be read: {error}."
            ) from None
        url = _checked_url(joined.partition("#")[0], hosts)
        if (self.url.scheme, url.scheme) == ("https", "http"):
            raise ToolError(f"{self.url.netloc} redirects from https to http, which is not followed.")
        # What the file says about one host, as a token, is not for another.
        headers = dict(self.headers) if url.netloc == self.url.netloc else {}
        if status == "303" or (status in ("301", "302") and self.method == "POST"):
            return _Request("GET", url, headers, None)
        if self.body is not None:
            headers = {"Content-Type": "application/json", **headers}
        return _Request(self.method, url, headers, self.body)


def _sent(request: _Request, deadline: _Deadline) -> str | tuple[HTTPResponse, bytes, bool]:
    """Send a request; return the response, its body and whether that was cut, or the status and target of a redirect."""
    make = HTTPSConnection if request.url.scheme == "https" else HTTPConnection
    host, port = request.url.hostname or "", request.url.port
    connection = make(host, port, timeout=deadline.left())
    target = (request.url.path or "/") + (f"?{request.url.query}" if request.url.query else "")
    try:
        connection.request(request.method, target, request.body, dict(request.headers))
        waiting = connection.sock  # the connection drops it when the response is to end it
        waiting.settimeout(deadline.left())
        response = connection.getresponse()
        location = response.getheader("Location")
        if response.status in (301, 302, 303, 307, 308) and location:
            return f"{response.status} {location}"
        return response, *_body(waiting, response, deadline)
    except TimeoutError:
        raise deadline.passed() from None
    except HTTPException as error:
        raise ToolError(
            f"{request.url.netloc} sent no HTTP response: {type(error).__name__} {error}"
        ) from error
    finally:
        connection.close()


def _body(waiting: socket, response: HTTPResponse, deadline: _Deadline) -> tuple[bytes, bool]:
    """Return the body, up to the limit, and whether it is longer."""
    body = bytearray()
    while len(body) <= RESPONSE_BYTES_MAX:
        waiting.settimeout(deadline.left())
        piece = response.read1(CHUNK_BYTES)
        if not piece:
            return bytes(body), False
        body += piece
    return bytes(body[:RESPONSE_BYTES_MAX]), True


def _text(response: HTTPResponse, body: bytes, is_cut: bool) -> str:
    """Return the body as text. Raises `ToolError` with it for another status than 2xx."""
    found = _CHARSET.search(response.getheader("Content-Type", ""))
    charset = found[1].lower() if found and found[1].lower() in _CHARSETS else "utf-8"
    text = body.decode(charset, errors="replace")
    if is_cut:
        text += f"\n… the response has more than {RESPONSE_BYTES_MAX // 2**20} MiB; the rest was not read"
    if not 200 <= response.status < 300:
        raise ToolError(f"HTTP {response.status} {response.reason}:\n{text}")
    return text
