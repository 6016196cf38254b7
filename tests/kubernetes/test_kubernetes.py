"""Sessions of pods, with a real control plane of Kubernetes and kubelets of the test's own: `make test-kubernetes`, which has built
the one and has a network namespace for both. Placement has the rights of `docs/kubernetes/toolcell.yaml` and no others.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from tests.cluster.scenarios import (
    LOOK_SECONDS,
    SECONDS_MAX,
    TENANTS,
    Engine,
    Scenarios,
    begun,
    called,
    lay_out,
    listed,
    occupied,
    opened,
    processes,
    refused,
    until,
)
from tests.kubernetes.control_plane import NAMESPACE, SERVER, ControlPlane, Kubelets, control_plane
from tests.pki import KEY, Authority

from toolcell.client import Kind, Unavailable, connect
from toolcelld_cluster.keys import stored

PROGRAMS = os.environ.get("TOOLCELL_KUBERNETES", "")
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.nightly,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not PROGRAMS, reason="TOOLCELL_KUBERNETES names no programs of Kubernetes; `make test-kubernetes`"
    ),
]

MANIFEST = Path(__file__).parents[2] / "docs" / "kubernetes" / "toolcell.yaml"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
PLACES = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/toolcell/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/toolcell/configmaps",
    "PersistentVolumeClaim": "/api/v1/namespaces/toolcell/persistentvolumeclaims",
    "Service": "/api/v1/namespaces/toolcell/services",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/toolcell/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/toolcell/rolebindings",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Deployment": "/apis/apps/v1/namespaces/toolcell/deployments",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/toolcell/networkpolicies",
}
FILE = """
    address = "127.0.0.1:7443"
    lease = 6.0
    ticket = 60.0

    [kubernetes]
    server = "SERVER"
    authority = "BASE/ca.crt"
    token = "BASE/placement.token"
    image = "toolcell:1"
    labels = { zone = "topology.kubernetes.io/zone" }
    idle = "90s"
    start = "90s"
    drain = "20s"

    [kubernetes.pods.plain]
    volumes = { a = "BASE/a", b = "BASE/b" }
    container = { resources = { requests = { cpu = "100m" } } }
    spec = { volumes = [{ name = "a", hostPath = { path = "BASE/a" } }, { name = "b", hostPath = { path = "BASE/b" } }] }

    [kubernetes.pods.gpu]
    volumes = { b = "BASE/b" }
    resources = { gpu = 1 }
    sessions = 1
    container = { resources = { limits = { "example.com/gpu" = 1 } } }
    spec = { volumes = [{ name = "b", hostPath = { path = "BASE/b" } }] }

    [kubernetes.pods.nowhere]
    volumes = { c = "BASE/c" }
    spec = { nodeSelector = { missing = "yes" } }
"""


@dataclass
class Placed(Engine):
    """Pods, and Placement."""

    plane: ControlPlane
    kubelets: Kubelets
    serving: subprocess.Popen[bytes] | None = None

    takes = ("cluster", "c:")
    silent = "the API server of Kubernetes does not answer"
    nowhere = "no [kubernetes.pods] has that volume"

    @property
    def file(self) -> Path:
        return self.base / "placement.toml"

    @property
    def said(self) -> str:
        return (self.base / "placement.log").read_text(errors="replace")

    def serve(self, *words: str) -> None:
        """Start Placement."""
        with (self.base / "placement.log").open("ab") as log:
            self.serving = subprocess.Popen(
                [sys.executable, "-P", "-m", "toolcell.cli", "cluster", "serve", str(self.file), *words],
                env={"PATH": os.environ["PATH"], "HOME": str(self.base)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
            )

    def end(self) -> None:
        assert self.serving is not None
        self.serving.terminate()
        assert self.serving.wait(60) == 0, self.said

    def pods(self) -> dict[str, dict[str, Any]]:
        """The pods that Placement has, as the API server tells of them."""
        found = self.plane.ask("GET", PODS, labelSelector="app.kubernetes.io/name=toolcell")["items"]
        return {pod["metadata"]["name"]: pod for pod in found if "deletionTimestamp" not in pod["metadata"]}

    def volume(self, node: str, name: str) -> Path:
        return self.base / name

    def daemon(self, node: str) -> int:
        (found,) = [
            number
            for number, line in processes().items()
            if f"--node {node} " in line and "toolcelld " in line
        ]
        return found

    def machine(self, node: str) -> str:
        name: str = self.pods()[node]["spec"].get("nodeName", "")
        return name

    def control(self, number: signal.Signals) -> None:
        self.plane.signal("kube-apiserver", number)

    def doors(self) -> list[str]:
        return ["127.0.0.1:7443", SERVER.removeprefix("https://")]

    def secrets(self, node: str) -> list[str]:
        token, state = self.base / "placement.token", self.base / "placement"
        return [str(token), str(state), str(self.base / self.machine(node) / node)]

    def kill(self, node: str) -> None:
        """End the kubelet, too, and have Kubernetes forget the machine, as that of a cloud does."""
        machine = self.machine(node)
        self.kubelets.started[machine].kill()
        for pod in [name for name in self.pods() if self.machine(name) == machine]:
            super().kill(pod)
        self.plane.ask("DELETE", f"/api/v1/nodes/{machine}")


@pytest.fixture
def spared() -> Callable[[], frozenset[int]]:
    """All processes: those of the pods come and go, and the namespace ends them."""
    return lambda: frozenset(processes())


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Placed]:
    begun = time.monotonic()
    base = tmp_path_factory.mktemp("k8s")
    digests = {lay_out(base / volume) for volume in ("a", "b", "c")}
    with control_plane(Path(PROGRAMS), base) as plane:
        kubelets = Kubelets(plane)
        placed = Placed(base, plane, kubelets)
        try:
            kubelets.start("n1", 21, {"topology.kubernetes.io/zone": "us"}, {})
            kubelets.start("n2", 22, {"topology.kubernetes.io/zone": "eu"}, {"example.com/gpu": "1"})
            apply(plane)
            account = f"{PLACES['ServiceAccount']}/placement/token"
            token = plane.ask("POST", account, {"spec": {"expirationSeconds": 36_000}})["status"]["token"]
            (base / "placement.token").write_text(token)
            text = (textwrap.dedent(FILE) + textwrap.dedent(TENANTS)).replace("DIGEST", digests.pop())
            placed.file.write_text(text.replace("BASE", str(base)).replace("SERVER", SERVER))
            placed.file.chmod(0o600)
            until(
                lambda: len(plane.ask("GET", "/api/v1/nodes")["items"]) == 2,
                "the kubelets have not registered",
            )
            placed.serve("--invite", "alice", "--invite", "bob")
            placed.join(lambda: placed.said)
            print(f"up in {time.monotonic() - begun:.0f} s")
            yield placed
            placed.end()
        finally:
            if placed.serving is not None and placed.serving.poll() is None:
                placed.serving.kill()
                placed.serving.wait()
            kubelets.end()


def apply(plane: ControlPlane) -> None:
    """Make all that the manifest of the documentation has. Its Placement gets no pod, as the kubelets have no images."""
    for content in yaml.safe_load_all(MANIFEST.read_text()):
        if content["kind"] == "Deployment":
            content["spec"]["replicas"] = 0
        plane.ask("POST", PLACES[content["kind"]], content)


@pytest.fixture
def placed(shared: Placed, monkeypatch: pytest.MonkeyPatch) -> Placed:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(shared.base / "client"))
    return shared


@pytest.fixture
def engine(placed: Placed) -> Placed:
    return placed


async def test_the_first_session_has_a_pod_made_and_the_second_is_on_it(placed: Placed) -> None:
    assert placed.pods() == {}
    async with opened("cluster", "a:"), connect("cluster", directory="b:"):
        (name,) = placed.pods()
        node = (await listed())[name]
        assert (node.sessions, node.sessions_max) == (2, 20)


async def test_a_pod_waits_for_what_no_machine_has(placed: Placed) -> None:
    async with opened("cluster?gpu=1", "b:"):
        assert "Insufficient example.com/gpu" in await refused("cluster?gpu=1", "b:", "Insufficient")
    assert "0/2 nodes are available" in await refused("cluster", "c:", "0/2 nodes")


async def test_an_eviction_cuts_no_call_and_its_sessions_are_elsewhere(placed: Placed) -> None:
    async with opened("cluster", "a:") as busy, connect("cluster", directory="a:") as idle:
        await called(idle, "where")
        call, mark = await begun(placed, busy, "evicted", seconds=5.0)
        before = await occupied()
        for pod in before:
            eviction = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": pod}}
            placed.plane.ask("POST", f"{PODS}/{pod}/eviction", eviction)
        await called(idle, "where")
        with anyio.fail_after(SECONDS_MAX):
            outcome = await call
        assert (outcome.kind, outcome.text) == (Kind.ok, "whole"), outcome
        await called(busy, "where")
        assert not set(before) & set(await occupied())
    assert mark.read_text().count("begin") == 1


async def test_a_placement_that_is_started_again_has_the_pods_and_the_sessions(placed: Placed) -> None:
    async with opened("cluster", "a:") as session:
        before = await occupied()
        await asyncio.to_thread(placed.end)
        await called(session, "where")
        with pytest.raises(Unavailable):
            async with connect("cluster", directory="a:"):
                pass
        placed.serve()
        with anyio.fail_after(SECONDS_MAX):
            while await occupied() != before:
                await asyncio.sleep(LOOK_SECONDS)
        async with opened("cluster", "a:") as other:
            await called(other, "where")
            await called(session, "where")
        assert set(before) <= placed.pods().keys()


async def test_a_pod_that_another_has_made_is_no_node(placed: Placed) -> None:
    """It has our labels and our offer, and its daemon has an authority of its own."""
    async with opened("cluster", "a:"):
        pod = next(pod for pod in placed.pods().values() if pod["status"].get("podIP"))
    theirs = {**pod["metadata"], "name": "toolcell-plain-theirs"}
    for key in ("uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink"):
        theirs.pop(key, None)
    text = json.dumps(pod["spec"]).replace(pod["metadata"]["name"], theirs["name"])
    spec = json.loads(text)
    spec.pop("nodeName")
    authority = Authority("theirs")
    identity = authority.identity(theirs["name"])
    files = {
        "ca.crt": authority.pem,
        "node.crt": identity.certificate,
        "node.key": identity.key,
        "tickets.key": KEY,
    }
    data = {name: base64.b64encode(content).decode() for name, content in files.items()}
    secrets = f"/api/v1/namespaces/{NAMESPACE}/secrets"
    placed.plane.ask("POST", secrets, {"metadata": {"name": theirs["name"]}, "data": data})
    placed.plane.ask("POST", PODS, {"metadata": theirs, "spec": spec})
    until(
        lambda: "Running" in str(placed.plane.ask("GET", f"{PODS}/{theirs['name']}")["status"]),
        "it does not run",
    )
    until(lambda: "toolcell-plain-theirs has the labels of a node" in placed.said, placed.said)
    assert theirs["name"] not in await listed()
    placed.plane.ask("DELETE", f"{PODS}/{theirs['name']}")


def test_placement_may_do_what_it_needs_and_no_more(placed: Placed) -> None:
    token = (placed.base / "placement.token").read_text()
    (name, *_) = placed.pods() or ["none"]
    with placed.plane.client(token) as client:
        assert client.get(PODS).status_code == 200
        for method, path in (
            ("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets"),
            ("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}"),
            ("POST", f"{PODS}/{name}/exec?command=id"),
            ("PATCH", f"{PODS}/{name}"),
            ("POST", "/api/v1/namespaces/default/pods"),
            ("GET", "/api/v1/pods"),
            ("DELETE", "/api/v1/nodes/n1"),
            ("PATCH", "/api/v1/nodes/n1"),
            ("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/placement/token"),
        ):
            answer = client.request(
                method,
                path,
                json={},
                headers={"content-type": "application/merge-patch+json"} if method == "PATCH" else {},
            )
            assert answer.status_code == 403, (method, path, answer.text)
    with placed.plane.client() as client:
        labels = {"metadata": {"labels": {"topology.kubernetes.io/zone": "\x1b[2J"}}}
        headers = {"content-type": "application/merge-patch+json"}
        assert client.patch("/api/v1/nodes/n1", json=labels, headers=headers).status_code == 422


def test_a_pod_without_sessions_goes_and_its_secret_and_its_keys_with_it(placed: Placed) -> None:
    until(lambda: not placed.pods(), "a pod is there still")
    state = str(placed.base / "placement")
    until(lambda: not stored(state), "keys are there still")
    secrets = f"/api/v1/namespaces/{NAMESPACE}/secrets"

    def left() -> list[str]:
        found = (each["metadata"]["name"] for each in placed.plane.ask("GET", secrets)["items"])
        return [name for name in found if name.startswith("toolcell-") and not name.endswith("-theirs")]

    until(lambda: not left(), "a Secret is there still")


class TestKubernetes(Scenarios):
    """With pods."""
