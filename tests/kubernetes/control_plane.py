"""A control plane of Kubernetes of the test's own: Debian's etcd, and the API server, the scheduler and the controllers that
`build.sh` has built from Debian's source. All of them listen on the loopback of the test's network namespace.
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.cluster.scenarios import until
from tests.pki import Authority

SERVER = "https://127.0.0.1:6443"
ETCD = "http://127.0.0.1:2379"
ADMIN = "admin-token-of-the-test"
NAMESPACE = "toolcell"


@dataclass
class ControlPlane:
    """The processes, and an administrator's way to them."""

    programs: Path
    directory: Path
    started: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict[str, subprocess.Popen[bytes]])

    @property
    def authority(self) -> Path:
        return self.directory / "ca.crt"

    def start(self) -> None:
        """Start all of it, and wait until it is ready."""
        self._write()
        at = self.directory
        self.run(
            "etcd",
            *("--data-dir", str(at / "etcd"), "--unsafe-no-fsync", "--logger", "zap"),
            *("--listen-client-urls", ETCD, "--advertise-client-urls", ETCD),
            *(
                "--listen-peer-urls",
                "http://127.0.0.1:2380",
                "--initial-advertise-peer-urls",
                "http://127.0.0.1:2380",
            ),
            *("--initial-cluster", "default=http://127.0.0.1:2380"),
        )
        self.run(
            "kube-apiserver",
            *("--etcd-servers", ETCD, "--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1"),
            *("--secure-port", "6443", "--tls-cert-file", str(at / "server.crt")),
            *("--tls-private-key-file", str(at / "server.key"), "--token-auth-file", str(at / "tokens.csv")),
            *("--service-account-key-file", str(at / "accounts.key")),
            *("--service-account-signing-key-file", str(at / "accounts.key")),
            *("--service-account-issuer", "https://kubernetes.default.svc"),
            *("--authorization-mode", "RBAC", "--service-cluster-ip-range", "10.0.0.0/24"),
            *("--endpoint-reconciler-type", "none", "--cert-dir", str(at)),
        )
        with self.client() as client:

            def ready() -> bool:
                try:
                    return client.get("/readyz").status_code == 200
                except httpx2.TransportError:
                    return False

            until(ready, self.log("kube-apiserver"))
        known = (
            "--kubeconfig",
            str(at / "admin.json"),
            "--leader-elect=false",
            "--port",
            "0",
            "--secure-port",
            "0",
        )
        self.run("kube-scheduler", *known)
        self.run(
            "kube-controller-manager",
            *known,
            *(
                "--service-account-private-key-file",
                str(at / "accounts.key"),
                "--root-ca-file",
                str(self.authority),
            ),
            *("--node-monitor-period", "1s", "--node-monitor-grace-period", "20s"),
        )

    def run(self, program: str, *words: str) -> None:
        with (self.directory / f"{program}.log").open("wb") as log:
            self.started[program] = subprocess.Popen(
                [str(self.programs / program), *words],
                env={"PATH": os.environ["PATH"], "HOME": str(self.directory)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
            )

    def signal(self, program: str, number: signal.Signals) -> None:
        self.started[program].send_signal(number)

    def log(self, program: str) -> str:
        return (self.directory / f"{program}.log").read_text(errors="replace")[-4000:]

    def client(self, token: str = ADMIN) -> httpx2.Client:
        """A client that may do what the token may."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.authority)
        return httpx2.Client(
            base_url=SERVER,
            verify=context,
            trust_env=False,
            timeout=30,
            headers={"authorization": f"Bearer {token}"},
        )

    def ask(
        self, method: str, path: str, content: dict[str, Any] | None = None, **query: str
    ) -> dict[str, Any]:
        """Ask as the administrator; a refusal fails the test."""
        with self.client() as client:
            kind = "application/strategic-merge-patch+json" if method == "PATCH" else "application/json"
            body = None if content is None else json.dumps(content)
            answer = client.request(method, path, params=query, content=body, headers={"content-type": kind})
            assert answer.status_code < 300, (method, path, answer.text)
            found: dict[str, Any] = answer.json()
            return found

    def end(self) -> None:
        """End it by the ids of its processes."""
        for process in reversed(self.started.values()):
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.started.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _write(self) -> None:
        authority = Authority("kubernetes")
        self.authority.write_bytes(authority.pem)
        server = authority.identity("kubernetes.default.svc")
        accounts = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
        admin = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "c", "cluster": {"server": SERVER, "certificate-authority": str(self.authority)}}
            ],
            "users": [{"name": "u", "user": {"token": ADMIN}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        for name, content in {
            "server.crt": server.certificate,
            "server.key": server.key,
            "accounts.key": accounts,
            "tokens.csv": f'{ADMIN},admin,1,"system:masters"\n'.encode(),
            "admin.json": json.dumps(admin).encode(),
        }.items():
            (self.directory / name).write_bytes(content)
            (self.directory / name).chmod(0o600)


class Kubelets:
    """The nodes: each is a process of `tests.kubernetes.kubelet`."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self.started: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, number: int, labels: dict[str, str], resources: dict[str, str]) -> None:
        """Start a node, whose pods have addresses of 127.0.NUMBER.0/24."""
        at = self._plane.directory / name
        at.mkdir()
        told = {
            "server": SERVER,
            "authority": str(self._plane.authority),
            "token": ADMIN,
            "name": name,
            "number": number,
            "labels": labels,
            "resources": resources,
            "directory": str(at),
        }
        with (at / "kubelet.log").open("wb") as log:
            self.started[name] = subprocess.Popen(
                [sys.executable, "-m", "tests.kubernetes.kubelet", json.dumps(told)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=Path(__file__).parents[2],
            )

    def end(self) -> None:
        for process in self.started.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.started.values():
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def control_plane(programs: Path, directory: Path) -> Generator[ControlPlane]:
    """A control plane, for the block."""
    plane = ControlPlane(programs, directory)
    try:
        plane.start()
        yield plane
    finally:
        plane.end()
