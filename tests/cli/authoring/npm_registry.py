"""A registry of npm packages on the loopback, and lock files that ask for what it has."""

from __future__ import annotations

import base64
import gzip
import hashlib
import http.server
import io
import json
import tarfile
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

__all__ = ["Registry", "registry"]

VERSION = "1.0.0"


@dataclass
class Registry:
    """The packages that are served."""

    address: str
    tarballs: dict[str, dict[str, bytes]] = field(default_factory=dict[str, dict[str, bytes]])
    """By the name of the package and its version, the newest last; so are the manifests."""
    manifests: dict[str, dict[str, dict[str, Any]]] = field(
        default_factory=dict[str, "dict[str, dict[str, Any]]"]
    )
    asked: list[str] = field(default_factory=list[str])
    """The paths that were asked for."""
    credentials: list[str] = field(default_factory=list[str])
    """What was sent as authorization."""
    waits: threading.Event | None = None
    """What each answer waits for."""
    demands: str = ""
    """The authorization without which it refuses, and repeats what it was sent."""

    def clear(self) -> None:
        """Serve nothing, and forget what was asked for."""
        for kept in (self.tarballs, self.manifests, self.asked, self.credentials):
            kept.clear()
        self.waits = None
        self.demands = ""

    def add(
        self,
        name: str,
        files: Mapping[str, str],
        *,
        scripts: Mapping[str, str] | None = None,
        entries: Sequence[tarfile.TarInfo] = (),
        version: str = VERSION,
        program: str = "",
        needs: Sequence[str] = (),
    ) -> None:
        """Serve a version of a package: its files, one of which may be its program, and further entries of its tarball."""
        manifest: dict[str, Any] = {"name": name, "version": version, "main": "index.js"}
        if program:
            manifest |= {"bin": program, "dependencies": dict.fromkeys(needs, f"^{VERSION}")}
        if scripts is not None:
            manifest |= {"scripts": dict(scripts)}
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for path, text in {"package.json": json.dumps(manifest), **files}.items():
                entry = tarfile.TarInfo(f"package/{path}")
                entry.size = len(text.encode())
                tar.addfile(entry, io.BytesIO(text.encode()))
            for entry in entries:
                tar.addfile(entry, io.BytesIO(b"x" * entry.size))
        self.tarballs.setdefault(name, {})[version] = gzip.compress(packed.getvalue())
        self.manifests.setdefault(name, {})[version] = manifest | {"hasInstallScript": scripts is not None}

    def integrity(self, name: str, version: str = VERSION) -> str:
        """The hash of a package, as lock files have it."""
        return "sha512-" + base64.b64encode(hashlib.sha512(self.tarballs[name][version]).digest()).decode()

    def tarball(self, name: str, version: str = VERSION) -> str:
        """The address of a package."""
        return f"{self.address}{name}/-/{name.rpartition('/')[2]}-{version}.tgz"

    def lock(self, directory: Path, manager: str, *names: str, tarball: str = "") -> None:
        """Write a `package.json` and a lock file that ask for packages; with `tarball` at that address."""
        asked = dict.fromkeys(names, VERSION)
        directory.mkdir(exist_ok=True)
        (directory / "package.json").write_text(json.dumps({"name": "project", "dependencies": asked}))
        if manager == "npm":
            packages: dict[str, Any] = {"": {"name": "project", "dependencies": asked}}
            for name in names:
                packages[f"node_modules/{name}"] = {
                    "version": VERSION,
                    "resolved": tarball or self.tarball(name),
                    "integrity": self.integrity(name),
                }
            text = json.dumps(
                {"name": "project", "lockfileVersion": 3, "requires": True, "packages": packages}
            )
            (directory / "package-lock.json").write_text(text)
            return
        locked: dict[str, list[Any]] = {
            name: [f"{name}@{VERSION}", tarball, {}, self.integrity(name)] for name in names
        }
        workspaces = {"": {"name": "project", "dependencies": asked}}
        text = json.dumps({"lockfileVersion": 1, "workspaces": workspaces, "packages": locked})
        (directory / "bun.lock").write_text(text)

    def answer(self, path: str) -> bytes | None:
        """Return what is at a path, or None."""
        name, _, tarball = unquote(path).strip("/").partition("/-/")
        versions: dict[str, Any] = {}
        for version, packed in self.tarballs.get(name, {}).items():
            address = self.tarball(name, version)
            if tarball and address.endswith(f"/-/{tarball}"):
                return packed
            dist = {"tarball": address, "integrity": self.integrity(name, version)}
            versions[version] = self.manifests[name][version] | {"dist": dist}
        if tarball or not versions:
            return None
        latest = {"latest": [*versions][-1]}
        return json.dumps({"name": name, "dist-tags": latest, "versions": versions}).encode()


@contextmanager
def registry() -> Generator[Registry]:
    """Serve packages on the loopback of the host."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.asked.append(self.path)
            if (sent := self.headers.get("Authorization")) is not None:
                served.credentials.append(sent)
            if served.waits is not None:
                served.waits.wait(20)
            body = served.answer(self.path)
            status = 404 if body is None else 200
            if served.demands not in ("", sent):
                status, body = 401, json.dumps({"error": f"not known: {sent}"}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base's name
            """The test looks at `asked`."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        served = Registry(f"http://127.0.0.1:{server.server_address[1]}/")
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield served
        finally:
            server.shutdown()
            serving.join()
