"""Stands for the API server of Kubernetes: lists and watches of pods and nodes over HTTPS, in the process of the test.

It checks as little as it can, and says what a test tells it to: `says` has an answer in place of its own. `tests/kubernetes` has the
real one.
"""

from __future__ import annotations

import asyncio
import gc
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.pki import Authority

TOKEN = "the-token"
PODS = "/api/v1/namespaces/toolcell/pods"
SECRETS = "/api/v1/namespaces/toolcell/secrets"
NODES = "/api/v1/nodes"


@dataclass
class Request:
    """What was asked."""

    method: str
    path: str
    query: dict[str, str]
    body: dict[str, Any]

    @property
    def kind(self) -> str:
        """What it is, for tests that count."""
        verb = "WATCH" if "watch" in self.query else "LIST" if self.method == "GET" else self.method
        return (
            f"{verb} {self.path.removeprefix('/api/v1/').removeprefix('namespaces/toolcell/').split('/')[0]}"
        )


@dataclass
class FakeKubernetes:
    """The objects, by path and name, and what has changed."""

    version: int = 1
    oldest: int = 0
    """Watches that begin before it are told that it is gone."""
    objects: dict[str, dict[str, dict[str, Any]]] = field(
        default_factory=lambda: {PODS: {}, NODES: {}, SECRETS: {}}
    )
    asked: list[Request] = field(default_factory=list[Request])
    says: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """A whole answer, by the kind of request."""
    _events: list[tuple[int, str, str]] = field(
        default_factory=list[tuple[int, str, str]]
    )  # version, path, line
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    connections: set[asyncio.StreamWriter] = field(default_factory=set[asyncio.StreamWriter])

    def put(self, path: str, content: dict[str, Any]) -> dict[str, Any]:
        """Make or change an object."""
        self.version += 1
        about = content.setdefault("metadata", {})
        about.setdefault("uid", f"uid-{self.version}")
        about["resourceVersion"] = str(self.version)
        is_new = about["name"] not in self.objects[path]
        self.objects[path][about["name"]] = content
        self._tell(path, "ADDED" if is_new else "MODIFIED", content)
        return content

    def remove(self, path: str, name: str) -> None:
        """Have an object be gone."""
        content = self.objects[path].pop(name)
        self.version += 1
        content["metadata"]["resourceVersion"] = str(self.version)
        self._tell(path, "DELETED", content)

    def runs(self, name: str, address: str = "127.0.0.1", node: str = "k1", **status: Any) -> None:
        """Have a pod run on a node."""
        pod = self.objects[PODS][name]
        pod["spec"]["nodeName"] = node
        pod["status"] = {"phase": "Running", "podIP": address, **status}
        self.put(PODS, pod)

    def node(self, name: str, labels: dict[str, str] | None = None, **spec: Any) -> None:
        self.put(NODES, {"metadata": {"name": name, "labels": labels or {}}, "spec": spec})

    def kinds(self) -> list[str]:
        return [request.kind for request in self.asked]

    def hang_up(self) -> None:
        """End all connections."""
        for writer in self.connections:
            writer.transport.abort()
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _tell(self, path: str, kind: str, content: dict[str, Any]) -> None:
        if path != SECRETS:
            self._events.append((self.version, path, json.dumps({"type": kind, "object": content})))
            self._wake()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.add(writer)
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                while await self._answer(reader, writer):
                    pass
        finally:
            self.connections.discard(writer)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, _ = head[0].split(" ")
        headers = {line.partition(":")[0].lower(): line.partition(":")[2].strip() for line in head[1:]}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        url = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        request = Request(method, url.path, query, json.loads(body or b"{}"))
        self.asked.append(request)
        if request.kind in self.says:
            writer.write(self.says[request.kind])
            await writer.drain()
            return b"content-length" in self.says[request.kind]
        if headers.get("authorization") != f"Bearer {TOKEN}":
            await self._write(writer, 401, {"code": 401, "message": "Unauthorized"})
        elif "watch" in query:
            await self._watch(writer, url.path, query)
            return False
        elif method == "GET":
            items = list(self.objects[url.path].values())
            about = {"resourceVersion": str(self.version)}
            await self._write(writer, 200, {"metadata": about, "items": items})
        elif method == "POST":
            await self._write(writer, 201, self.put(url.path, request.body))
        else:
            path, _, name = url.path.rpartition("/")
            pod = self.objects[path].get(name)
            if pod is not None:
                pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
                self.put(path, pod)
            await self._write(writer, 200 if pod else 404, {"code": 404})
        return True

    async def _watch(self, writer: asyncio.StreamWriter, path: str, query: dict[str, str]) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        at = int(query["resourceVersion"])
        if at < self.oldest:
            gone = {"kind": "Status", "code": 410, "message": "too old resource version"}
            writer.write(chunk(json.dumps({"type": "ERROR", "object": gone})) + b"0\r\n\r\n")
            return
        while not writer.transport.is_closing():
            changed = self._changed
            for version, of, line in self._events:
                if version > at and of == path:
                    writer.write(chunk(line))
                    at = version
            await writer.drain()
            await changed.wait()

    async def _write(self, writer: asyncio.StreamWriter, status: int, content: dict[str, Any]) -> None:
        writer.write(answer(status, json.dumps(content).encode()))
        await writer.drain()


def answer(status: int, body: bytes, *headers: str) -> bytes:
    """A whole answer."""
    lines = [
        f"HTTP/1.1 {status} x",
        f"content-length: {len(body)}",
        "content-type: application/json",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def chunk(line: str) -> bytes:
    body = f"{line}\n".encode()
    return f"{len(body):x}\r\n".encode() + body + b"\r\n"


@asynccontextmanager
async def serving(fake: FakeKubernetes, directory: Path, port: int = 0) -> AsyncIterator[int]:
    """Serve; the port. The authority and the token of a client are files of the directory."""
    authority = Authority()
    (directory / "ca.crt").write_bytes(authority.pem)
    (directory / "token").write_text(f"{TOKEN}\n")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.identity("localhost").written(directory))
    server = await asyncio.start_server(fake.serve, "127.0.0.1", port, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        while fake.connections:
            fake.hang_up()
            await asyncio.sleep(0)
        while any("_accept_connection2" in repr(task) for task in asyncio.all_tasks()):
            gc.collect()  # httpx2 leaves a connection to it where its task is cancelled in the handshake
            await asyncio.sleep(0.01)
