"""Sessions of pods, with a real control plane of Kubernetes and kubelets of the test's own: `make test-kubernetes`, which has built
the one and has a network namespace for both. Placement has the rights of `docs/kubernetes/toolcell.yaml` and no others.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from tests.kubernetes.control_plane import NAMESPACE, SERVER, ControlPlane, Kubelets, control_plane
from tests.pki import KEY, Authority
from tests.ray.raylets import SECONDS_MAX, processes, until

from toolcell.client import Call, Kind, Session, Unavailable, connect
from toolcell.client._grpc.methods import ToolCellMethods
from toolcell.client._launch.placed import Placed as PlacedSession
from toolcell.client._launch.remote import Machine, Remote
from toolcell.client.errors import Refused
from toolcell_proto.v1 import toolcell_pb2 as pb
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

STOPPED_SECONDS = 30
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

    [kubernetes]
    server = "SERVER"
    authority = "BASE/ca.crt"
    token = "BASE/placement.token"
    image = "toolcell:1"
    labels = { zone = "topology.kubernetes.io/zone" }
    idle = "45s"
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

    [tenants.alice]
    directories = ["a:", "b:", "c:"]
    resources = { gpu = 2 }
    operator = true

    [tenants.bob]
    directories = ["b:docs"]
    sessions = 1
"""
TOOLS = """
    import os, time
    from toolcell import tool

    @tool
    def where() -> str:
        return os.getcwd()

    @tool
    def seen() -> list[str]:
        return [name for name in os.environ if "KUBERNETES" in name]

    @tool
    def ticks(file: str, seconds: float) -> str:
        with open(file, "a", buffering=1) as out:
            out.write("begin\\n")
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                out.write("tick\\n")
                time.sleep(0.05)
            out.write("end\\n")
        return "whole"
"""


@dataclass
class Placed:
    """The cluster, and how clients come to it."""

    plane: ControlPlane
    base: Path
    serving: subprocess.Popen[bytes] | None = None

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

    def command(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run `toolcell` as a client."""
        return subprocess.run(
            [sys.executable, "-P", "-m", "toolcell.cli", *words],
            env={"PATH": os.environ["PATH"], "XDG_CONFIG_HOME": str(self.base / "client"), **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )

    def nodes(self, column: int = 1) -> dict[str, str]:
        """The state of each node, or another column of the list."""
        listed = self.command("cluster", "nodes").stdout.splitlines()[1:]
        return {line.split()[0]: line.split()[column] for line in listed}

    def pods(self) -> dict[str, dict[str, Any]]:
        """The pods that Placement has, as the API server tells of them."""
        found = self.plane.ask("GET", PODS, labelSelector="app.kubernetes.io/name=toolcell")["items"]
        return {pod["metadata"]["name"]: pod for pod in found if "deletionTimestamp" not in pod["metadata"]}

    def processes(self, pod: str) -> list[int]:
        """The daemon of a pod, and all that it has started."""
        found = [
            number
            for number, line in processes().items()
            if f"--node {pod} " in line and "toolcelld " in line
        ]
        parents: dict[int, int] = {}
        for number in processes():
            with contextlib.suppress(OSError):
                parents[number] = int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1])
        for each in found:
            found += [number for number, parent in parents.items() if parent == each]
        return found


@pytest.fixture
def spared() -> Callable[[], frozenset[int]]:
    """All processes: those of the pods come and go, and the namespace ends them."""
    return lambda: frozenset(processes())


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Placed]:
    begun = time.monotonic()
    base = tmp_path_factory.mktemp("k8s")
    for volume in ("a", "b", "c"):
        tools = base / volume / ".toolcell" / "tools"
        tools.mkdir(parents=True)
        (tools / "t.py").write_text(textwrap.dedent(TOOLS))
        (base / volume / "docs").mkdir()
    with control_plane(Path(PROGRAMS), base) as plane:
        kubelets = Kubelets(plane)
        placed = Placed(plane, base)
        try:
            kubelets.start("k1", 21, {"topology.kubernetes.io/zone": "eu"}, {})
            kubelets.start("k2", 22, {"topology.kubernetes.io/zone": "us"}, {"example.com/gpu": "1"})
            apply(plane)
            account = f"{PLACES['ServiceAccount']}/placement/token"
            token = plane.ask("POST", account, {"spec": {"expirationSeconds": 36_000}})["status"]["token"]
            (base / "placement.token").write_text(token)
            text = textwrap.dedent(FILE).replace("BASE", str(base)).replace("SERVER", SERVER)
            placed.file.write_text(text)
            placed.file.chmod(0o600)
            until(
                lambda: len(plane.ask("GET", "/api/v1/nodes")["items"]) == 2,
                "the kubelets have not registered",
            )
            placed.serve("--invite", "alice", "--invite", "bob")
            pattern = r"toolcell cluster join (\S+) (\S+)"
            until(lambda: len(re.findall(pattern, placed.said)) == 2 or failed(placed), placed.said)
            codes = re.findall(pattern, placed.said)
            joined = placed.command("cluster", "join", *codes[0])
            assert joined.returncode == 0, joined
            bob = placed.command("cluster", "join", *codes[1], XDG_CONFIG_HOME=str(base / "bob"))
            assert bob.returncode == 0, bob
            print(f"up in {time.monotonic() - begun:.0f} s")
            yield placed
            placed.end()
        finally:
            if placed.serving is not None and placed.serving.poll() is None:
                placed.serving.kill()
                placed.serving.wait()
            kubelets.end()


def failed(placed: Placed) -> bool:
    assert placed.serving is not None
    assert placed.serving.poll() is None, placed.said
    return False


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


async def called(session: Session, tool: str, **arguments: object) -> str:
    with anyio.fail_after(SECONDS_MAX):
        outcome = await session.call(f"t_{tool}", arguments)
    assert outcome.kind is Kind.ok, outcome.message
    return outcome.text


@asynccontextmanager
async def opened(address: str, directory: str) -> AsyncGenerator[Session]:
    """A session, once there is a pod for it: clients ask again until then."""
    async with AsyncExitStack() as stack:
        with anyio.fail_after(SECONDS_MAX):
            while True:
                try:
                    session = await stack.enter_async_context(connect(address, directory=directory))
                    break
                except Unavailable:
                    await asyncio.sleep(0.1)
        yield session


async def refused(address: str, directory: str, why: str = "") -> str:
    """Why a session is refused that does not wait; tried until the reason is that one."""
    address = f"{address}{'&' if '?' in address else '?'}wait=0"
    with anyio.fail_after(SECONDS_MAX):
        while True:
            with pytest.raises(Unavailable) as found:
                async with connect(address, directory=directory):
                    pass
            if why in found.value.message:
                return found.value.message
            await asyncio.sleep(0.1)


async def begun(session: Session, mark: Path, seconds: float = 3600.0) -> Call:
    """A call that writes lines as long as it runs."""
    call = session.call("t_ticks", {"file": str(mark), "seconds": seconds})
    with anyio.fail_after(SECONDS_MAX):
        while not (mark.exists() and "tick" in mark.read_text()):
            await asyncio.sleep(0.05)
    return call


async def eventually(session: Session) -> None:
    """Call until the session has a pod again."""
    with anyio.fail_after(SECONDS_MAX):
        while (await session.call("t_where")).kind is not Kind.ok:
            await asyncio.sleep(0.1)


async def occupied(placed: Placed) -> list[str]:
    """The pods that have sessions."""
    found = await asyncio.to_thread(placed.nodes, 2)
    return [name for name, sessions in found.items() if not sessions.startswith("0/")]


async def test_the_first_session_has_a_pod_made_and_the_second_is_on_it(placed: Placed) -> None:
    assert placed.pods() == {}
    async with opened("cluster", "a:") as first, connect("cluster", directory="b:") as second:
        assert await called(first, "where") == str(placed.base / "a")
        assert await called(second, "where") == str(placed.base / "b")
        assert json.loads(await called(first, "seen")) == []
        (name,) = placed.pods()
        assert await asyncio.to_thread(placed.nodes, 2) == {name: "2/20"}
        call = await begun(first, placed.base / "a" / "aborted")
        call.abort()
        with anyio.fail_after(SECONDS_MAX):
            assert (await call).kind is Kind.aborted


async def test_pods_are_on_the_node_that_has_the_label_and_the_resource(placed: Placed) -> None:
    async with opened("cluster?zone=us", "a:") as session, opened("cluster?gpu=1", "b:") as gpu:
        assert await called(session, "where") == str(placed.base / "a")
        assert await called(gpu, "where") == str(placed.base / "b")
        on = {
            pod["metadata"]["labels"]["toolcell.dev/template"]: pod["spec"]["nodeName"]
            for pod in placed.pods().values()
        }
        assert on["gpu"] == "k2"
        assert "Insufficient example.com/gpu" in await refused("cluster?gpu=1", "b:", "Insufficient")
    assert "no [kubernetes.pods] has that volume" in await refused("cluster?zone=moon", "a:")
    assert "may have 2 of gpu" in await refused("cluster?gpu=3", "b:")
    assert "may not use 'd:'" in await refused("cluster", "d:")
    assert "0/2 nodes are available" in await refused("cluster", "c:", "0/2 nodes")


async def test_a_container_that_is_killed_is_started_again_and_no_call_runs_twice(placed: Placed) -> None:
    async with opened("cluster", "a:") as session:
        mark = placed.base / "a" / "killed"
        call = await begun(session, mark)
        (pod,) = await occupied(placed)
        os.kill(placed.processes(pod)[0], signal.SIGKILL)
        with anyio.fail_after(SECONDS_MAX):
            outcome = await call
        assert outcome.kind is Kind.internal, outcome
        await eventually(session)
    assert mark.read_text().count("begin") == 1


async def test_a_session_of_a_pod_that_is_frozen_is_on_another_and_no_call_runs_twice(placed: Placed) -> None:
    async with opened("cluster", "a:") as session:
        mark = placed.base / "a" / "frozen"
        call = await begun(session, mark)
        (pod,) = await occupied(placed)
        frozen = placed.processes(pod)
        for process in frozen:
            os.kill(process, signal.SIGSTOP)
        try:
            with anyio.fail_after(SECONDS_MAX):
                outcome = await call
                assert (outcome.kind, outcome.cause) == (Kind.internal, "node_lost")
                assert outcome.metadata["node"] == pod
                await eventually(session)
            assert pod not in await occupied(placed)
        finally:
            for process in frozen:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGCONT)
    assert mark.read_text().count("begin") == 1


async def test_an_eviction_cuts_no_call_and_its_sessions_are_elsewhere(placed: Placed) -> None:
    async with opened("cluster", "a:") as busy, connect("cluster", directory="a:") as idle:
        mark = placed.base / "a" / "evicted"
        await called(idle, "where")
        call = await begun(busy, mark, seconds=5.0)
        before = await occupied(placed)
        for pod in before:
            eviction = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": pod}}
            placed.plane.ask("POST", f"{PODS}/{pod}/eviction", eviction)
        await called(idle, "where")
        with anyio.fail_after(SECONDS_MAX):
            outcome = await call
        assert (outcome.kind, outcome.text) == (Kind.ok, "whole"), outcome
        await called(busy, "where")
        assert not set(before) & set(await occupied(placed))
    assert mark.read_text().count("begin") == 1


async def test_without_the_api_server_open_sessions_go_on_and_no_pod_is_made(placed: Placed) -> None:
    async with opened("cluster", "a:") as session:
        await called(session, "where")
        placed.plane.signal("kube-apiserver", signal.SIGSTOP)
        try:
            over = time.monotonic() + STOPPED_SECONDS
            await refused("cluster?gpu=1", "b:", "did not answer within")
            async with connect("cluster", directory="b:") as other:
                while time.monotonic() < over:
                    await called(session, "where")
                    await called(other, "where")
        finally:
            placed.plane.signal("kube-apiserver", signal.SIGCONT)
        await called(session, "where")
    async with opened("cluster?gpu=1", "b:") as session:
        await called(session, "where")


async def test_a_placement_that_is_started_again_has_the_pods_and_the_sessions(placed: Placed) -> None:
    async with opened("cluster", "a:") as session:
        before = await occupied(placed)
        await asyncio.to_thread(placed.end)
        await called(session, "where")
        with pytest.raises(Unavailable):
            async with connect("cluster", directory="a:"):
                pass
        placed.serve()
        with anyio.fail_after(SECONDS_MAX):
            while True:
                with contextlib.suppress(Unavailable):
                    if await occupied(placed) == before:
                        break
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
    assert theirs["name"] not in await asyncio.to_thread(placed.nodes)
    placed.plane.ask("DELETE", f"{PODS}/{theirs['name']}")


async def test_a_ticket_of_a_pod_is_worth_nothing_on_another(placed: Placed) -> None:
    async with opened("cluster?zone=eu", "a:"), opened("cluster?zone=us", "a:"):
        places = [PlacedSession.joined(f"cluster:a:?zone={zone}") for zone in ("eu", "us")]
        for place in places:
            await place.ready()
        (eu, us) = (place._place for place in places)
        assert eu is not None
        assert us is not None
        assert eu.node != us.node
        machine = Machine(node=us.node, directory="", authority=us.authority, ticket=eu.ticket)
        async with Remote(us.address, machine, places[0]._path).dial() as channel:
            with pytest.raises(Refused) as found:
                await channel.ask(ToolCellMethods.ListTools, pb.ListToolsRequest(), 10)
            assert found.value.reason == "unauthenticated"
        for place in places:
            await place.end()


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
            ("DELETE", "/api/v1/nodes/k1"),
            ("PATCH", "/api/v1/nodes/k1"),
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
        assert client.patch("/api/v1/nodes/k1", json=labels, headers=headers).status_code == 422


def test_a_pod_without_sessions_goes_and_its_secret_and_its_keys_with_it(placed: Placed) -> None:
    until(lambda: not placed.pods(), "a pod is there still")
    state = str(placed.base / "placement")
    until(lambda: not stored(state), "keys are there still")
    secrets = f"/api/v1/namespaces/{NAMESPACE}/secrets"

    def left() -> list[str]:
        found = (each["metadata"]["name"] for each in placed.plane.ask("GET", secrets)["items"])
        return [name for name in found if name.startswith("toolcell-") and not name.endswith("-theirs")]

    until(lambda: not left(), "a Secret is there still")
