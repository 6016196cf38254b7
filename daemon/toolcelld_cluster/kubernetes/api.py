"""Requests to the API server of Kubernetes: TLS, the token of a service account, and bounds for what it answers.

The token is read for each request, as Kubernetes replaces the file once an hour.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import httpx2

from toolcelld_cluster.configuration import FileError, KubernetesSection

ANSWER_SECONDS: Final = 10.0
"""For a request as a whole, but a watch."""
CONNECT_SECONDS: Final = 3.0
WATCH_SECONDS: Final = 60
"""After which the API server ends a watch, and it is asked again from there on. A line that was cut is noticed with that."""
PAGE: Final = 500
"""Objects of one answer to a list."""
BODY_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of one answer: 500 nodes with the lists of their images have some megabytes."""
LINE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of one event: etcd takes no object of more than a megabyte and a half."""
TOKEN_BYTES_MAX: Final = 64 * 1024
TEXT_LETTERS_MAX: Final = 500
GONE: Final = 410


class ApiFault(Exception):
    """The API server cannot be reached, or answers with what is no answer; the text says why."""


class ApiRefused(ApiFault):
    """The API server refuses a request; the text says why."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Api:
    """A connection to the API server, for `opened`."""

    def __init__(self, client: httpx2.AsyncClient, token: str) -> None:
        self._client = client
        self._token = token

    async def list(
        self, path: str, selector: str, take: Callable[[Mapping[str, Any]], None], objects_max: int
    ) -> str:
        """Hand over each object of a kind, and return the version from which a watch goes on.

        Raises:
            ApiFault: Also for more objects than that.
        """
        at, count = "", 0
        while True:
            asked = {"limit": str(PAGE), "labelSelector": selector, "continue": at}
            answer = await self._ask("GET", path, {name: text for name, text in asked.items() if text})
            about, items = answer.get("metadata"), answer.get("items")
            if not isinstance(about, dict) or not isinstance(items or [], list):
                raise ApiFault("it answers with what is no list")
            for item in cast("list[object]", items or []):
                count += 1
                if count > objects_max:
                    raise ApiFault(f"it has more than {objects_max} objects of {path}")
                take(_object(item))
            known = cast("dict[str, object]", about)
            at = _text(known.get("continue") or "")
            if not at:
                return _text(known.get("resourceVersion"))

    async def watch(
        self,
        path: str,
        selector: str,
        version: str,
        take: Callable[[str, Mapping[str, Any]], None],
        on_begun: Callable[[], None],
    ) -> None:
        """Hand over each change from a version on, until the API server ends the watch. `on_begun` is called when it begins.

        Raises:
            ApiRefused: With the status `GONE`: that version is too old, and a list is needed.
            ApiFault: The connection is lost.
        """
        asked = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        if selector:
            asked["labelSelector"] = selector
        async with self._answer("GET", path, asked, None, WATCH_SECONDS + ANSWER_SECONDS) as response:
            on_begun()
            rest = bytearray()
            async for piece in response.aiter_raw():
                rest += piece
                *lines, rest = rest.split(b"\n")
                for line in filter(None, lines):
                    event = _object(_json(line))
                    kind, content = _text(event.get("type")), _object(event.get("object"))
                    if kind == "ERROR":
                        raise _refused(content, 0)
                    take(kind, content)
                if len(rest) > LINE_BYTES_MAX:
                    raise ApiFault(f"an event has more than {LINE_BYTES_MAX} bytes")

    async def create(self, path: str, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Make an object, and return it as it is. Raises ApiFault."""
        return await self._ask("POST", path, {}, content)

    async def delete(self, path: str, uid: str) -> None:
        """Delete an object, unless it is gone or has another id; an empty one is any. Raises ApiFault."""
        try:
            await self._ask("DELETE", path, {}, {"preconditions": {"uid": uid}} if uid else {})
        except ApiRefused as refused:
            if refused.status not in (404, 409):
                raise

    async def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        content: Mapping[str, Any] | None = None,
    ) -> Mapping[str, Any]:
        async with self._answer(method, path, query, content, ANSWER_SECONDS) as response:
            return _object(_json(await _body(response)))

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        content: Mapping[str, Any] | None,
        seconds: float,
    ) -> AsyncGenerator[httpx2.Response]:
        """An answer that is no refusal, for the block. All errors of the connection become ApiFault."""
        token = await asyncio.to_thread(_read_token, self._token)
        headers = {"authorization": f"Bearer {token}"} if token else {}
        try:
            async with (
                asyncio.timeout(seconds),
                self._client.stream(method, path, params=query, json=content, headers=headers) as response,
            ):
                if response.status_code >= 300:
                    raise _refused(_told(await _body(response)), response.status_code)
                yield response
        except TimeoutError as error:
            raise ApiFault(f"it did not answer within {seconds:g} s") from error
        except httpx2.TimeoutException as error:
            raise ApiFault(f"it did not answer within {CONNECT_SECONDS:g} s") from error
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, OSError) as error:
            raise ApiFault(str(error) or type(error).__name__) from error


@asynccontextmanager
async def opened(section: KubernetesSection) -> AsyncGenerator[Api]:
    """The API server of a configuration, for the block. Nothing is asked yet. Raises FileError."""
    try:
        context = await asyncio.to_thread(_context, section)
    except OSError as error:  # an SSLError is one
        raise FileError(f"{section.authority} cannot be used: {error.strerror or error}") from error
    async with httpx2.AsyncClient(
        base_url=section.server,
        verify=context,
        trust_env=False,
        follow_redirects=False,
        headers={"accept": "application/json", "accept-encoding": "identity", "user-agent": "toolcell"},
        timeout=httpx2.Timeout(WATCH_SECONDS + ANSWER_SECONDS, connect=CONNECT_SECONDS),
    ) as client:
        yield Api(client, section.token)


def _context(section: KubernetesSection) -> ssl.SSLContext:
    context = ssl.SSLContext(
        ssl.PROTOCOL_TLS_CLIENT
    )  # many a cluster's authority is refused by the stricter default
    context.load_verify_locations(section.authority)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _read_token(path: str) -> str:
    if not path:
        return ""
    try:
        with open(path, "rb") as file:
            token = file.read(TOKEN_BYTES_MAX + 1).decode("ascii").strip()
    except (OSError, ValueError) as error:
        raise ApiFault(f"{path} cannot be read: {error}") from error
    if not token or len(token) > TOKEN_BYTES_MAX or not token.isprintable() or " " in token:
        raise ApiFault(f"{path} has no token")
    return token


async def _body(response: httpx2.Response) -> bytes:
    found = bytearray()
    async for piece in response.aiter_raw():
        found += piece
        if len(found) > BODY_BYTES_MAX:
            raise ApiFault(f"it answers with more than {BODY_BYTES_MAX} bytes")
    return bytes(found)


def _told(body: bytes) -> Mapping[str, Any]:
    """Return what the API server says of a refusal, or nothing."""
    try:
        return _object(_json(body))
    except ApiFault:
        return {}


def _json(line: bytes | bytearray) -> object:
    try:
        found: object = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ApiFault("it answers with what is no JSON") from error
    return found


def _object(found: object) -> Mapping[str, Any]:
    if not isinstance(found, dict):
        raise ApiFault("it answers with what is no object")
    return cast("Mapping[str, Any]", found)


def _text(found: object) -> str:
    if not isinstance(found, str):
        raise ApiFault("it answers without a version")
    return found


def _refused(said: Mapping[str, Any], status: int) -> ApiRefused:
    code = said.get("code")
    text = str(said.get("message") or f"it answers with the status {status or code}")
    return ApiRefused(code if isinstance(code, int) else status, text[:TEXT_LETTERS_MAX])
