"""The engine for Kubernetes, with an API server of the test's own. No pod runs: what its daemon says is put into the book."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
import yaml

from toolcelld.sessions.lease import clock
from toolcelld_cluster.book import Book, Client, Held, Lease, NoRoom
from toolcelld_cluster.configuration import ClusterConfiguration, FileError, load
from toolcelld_cluster.inventory import Inventory, Needs
from toolcelld_cluster.keys import keys, stored
from toolcelld_cluster.kubernetes import api as requests
from toolcelld_cluster.kubernetes import engine as module
from toolcelld_cluster.kubernetes import mirror, node
from toolcelld_cluster.kubernetes.engine import KubernetesEngine, authority, check, delete_all
from toolcelld_cluster.kubernetes.pods import PLACEMENT, manifest, offer_for, read_pod

from .fake_kubernetes import PODS, SECRETS, FakeKubernetes, answer, chunk, serving

# httpx2 leaves a connection to the collector where its task is cancelled in the handshake of TLS.
UNCLOSED: Final = ("ignore:unclosed transport <:ResourceWarning", "ignore:unclosed <socket:ResourceWarning")
pytestmark = [pytest.mark.anyio, *map(pytest.mark.filterwarnings, UNCLOSED)]

ALICE = Client("alice", "aa" * 32)
SECONDS_MAX = 60
PLACEMENT_FILE = """
address = "127.0.0.1:0"
exclusive = ["alone"]

[kubernetes]
server = "https://127.0.0.1:PORT"
authority = "BASE/ca.crt"
token = "BASE/token"
image = "toolcell:1"
labels = { zone = "topology.kubernetes.io/zone" }
port = 7444
pods_max = 3
drain = "20s"

[kubernetes.pods.plain]
volumes = { a = "/srv/a", alone = "/srv/alone" }

[kubernetes.pods.gpu]
volumes = { a = "/srv/a" }
labels = { kind = "gpu" }
resources = { gpu = 2 }
sessions = 1
spec = { volumes = [{ name = "a", persistentVolumeClaim = { claimName = "a" } }], runtimeClassName = "gvisor" }
container = { resources = { limits = { "nvidia.com/gpu" = 2 } } }

[tenants.alice]
directories = ["a:"]
resources = { gpu = 4 }
"""
NEEDS = Needs(volume="a")


def configured(directory: Path, port: int, *changes: tuple[str, str]) -> ClusterConfiguration:
    text = PLACEMENT_FILE.replace("PORT", str(port)).replace("BASE", str(directory))
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    file = directory / "placement.toml"
    file.write_text(text)
    file.chmod(0o600)
    return load(str(file))


@dataclass
class Running:
    """An engine that runs."""

    fake: FakeKubernetes
    engine: KubernetesEngine
    book: Book
    state: str
    labels: dict[str, str] = field(default_factory=dict[str, str])

    async def until(self, found: Callable[[], object]) -> None:
        with anyio.fail_after(SECONDS_MAX):
            while not found():
                await asyncio.sleep(0.01)

    async def wanted(self, needs: Needs = NEEDS) -> str:
        """Have a pod made; its name."""
        before = set(self.fake.objects[SECRETS])
        said = self.engine.want("alice", needs).said
        assert "is being made" in said, said
        await self.until(lambda: len(self.fake.objects[SECRETS]) > len(before))
        (name,) = set(self.fake.objects[SECRETS]) - before
        return name

    async def started(self, needs: Needs = NEEDS) -> str:
        """Have a pod made that runs, and whose daemon answers."""
        name = await self.wanted(needs)
        self.fake.runs(name)
        await self.reports(name)
        return name

    async def reports(self, name: str) -> None:
        await self.until(lambda: name in self.engine.inventory)
        self.engine.nodes()[name].seen_at = time.time()
        self.book.report(0.0, name, (), takes=True)

    def resolve(self, needs: Needs = NEEDS) -> Lease:
        """A lease; the pods report before, as none of them has a daemon."""
        for name, watch in self.engine.nodes().items():
            self.book.report(0.0, name, (), takes=not watch.draining)
        return self.book.resolve(clock(), ALICE, "a:", needs.labels, needs.resources)


@asynccontextmanager
async def running(fake: FakeKubernetes, configuration: ClusterConfiguration) -> AsyncIterator[Running]:
    assert configuration.kubernetes is not None
    made = keys(configuration.state, "placement", stored(configuration.state))
    book = Book(configuration.rules(), Inventory(), clock(), 1)
    engine = KubernetesEngine(configuration, configuration.kubernetes, book, made)
    book.freed = engine.release
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(engine.run())
        yield Running(fake, engine, book, configuration.state, {PLACEMENT: authority(made)})
        task.cancel()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(module, "GATHER_SECONDS", 0.0)
    monkeypatch.setattr(module, "FAILED_SECONDS", 3600.0)
    monkeypatch.setattr(mirror, "PAUSE_SECONDS", (0.01, 0.02))


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[tuple[FakeKubernetes, int]]:
    found = FakeKubernetes()
    found.node("k1", {"topology.kubernetes.io/zone": "eu", "other": "x"})
    async with serving(found, tmp_path) as port:
        yield found, port


@pytest.fixture
async def ran(fake: tuple[FakeKubernetes, int], tmp_path: Path) -> AsyncIterator[Running]:
    async with running(fake[0], configured(tmp_path, fake[1])) as found:
        with anyio.fail_after(SECONDS_MAX):
            await found.engine.ready()
        yield found


async def test_a_session_without_a_pod_gets_one_and_the_next_one_waits_for_the_same(ran: Running) -> None:
    name = await ran.wanted()
    assert ran.engine.want("alice", NEEDS).said == f"the pod {name} is being started"
    secret = ran.fake.objects[SECRETS][name]
    pod = ran.fake.objects[PODS][name]
    (owner,) = secret["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Pod", pod["metadata"]["uid"])
    assert sorted(secret["data"]) == [
        "ca.crt",
        "node.crt",
        "node.key",
        "tickets.key",
    ]  # and no key of the authority
    assert base64.b64decode(secret["data"]["tickets.key"]) == ran.engine._keys.tickets[name]
    with pytest.raises(NoRoom):
        ran.resolve()
    ran.fake.runs(name)
    await ran.reports(name)
    assert ran.resolve().node == ran.resolve().node == name
    known = ran.engine.inventory.node(name)
    assert (known.address, known.labels) == ("127.0.0.1:7444", {"zone": "eu"})
    assert known.volumes == {"a": "/srv/a", "alone": "/srv/alone"}


async def test_a_pod_is_made_of_the_first_template_that_has_what_a_session_needs(ran: Running) -> None:
    asked = Needs(volume="a", labels={"zone": "eu"}, resources={"gpu": 1.0})
    name = await ran.wanted(asked)
    spec = ran.fake.objects[PODS][name]["spec"]
    assert spec["nodeSelector"] == {"topology.kubernetes.io/zone": "eu"}
    assert name.startswith("toolcell-gpu-")
    nothing = "no [kubernetes.pods] has that volume"
    assert nothing in ran.engine.want("alice", Needs(volume="none")).said
    assert nothing in ran.engine.want("alice", Needs(volume="a", resources={"gpu": 3.0})).said
    # No node of Kubernetes has it; nor may a session ask for any label.
    for labels in ({"zone": "moon"}, {"other": "x"}):
        assert nothing in ran.engine.want("alice", Needs(volume="a", labels=labels)).said


@pytest.mark.parametrize("bound", ["STARTING_MAX", "TENANTS_STARTING_MAX"])
async def test_as_many_pods_are_made_as_the_file_says_and_no_more(
    ran: Running, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    for _ in range(3):
        name = await ran.started(Needs(volume="a", labels={"kind": "gpu"}))
        ran.book.report(0.0, name, (), takes=False)
    assert "there are 3, and [kubernetes] pods_max = 3" in ran.engine.want("alice", NEEDS).said
    assert ran.fake.kinds().count("POST pods") == 3
    monkeypatch.setattr(module, bound, 0)
    ran.fake.remove(PODS, name)
    await ran.until(lambda: "are being started" in ran.engine.want("alice", NEEDS).said)


async def test_a_pod_goes_when_it_has_had_no_session_for_a_time_and_its_keys_go_with_it(ran: Running) -> None:
    name = await ran.started()
    place = ran.engine._places[name]
    lease = ran.resolve()
    long_ago = place.used_at = clock() - 3600.0
    await ran.until(lambda: place.used_at > long_ago)  # it has a session
    ran.book.release(clock(), ALICE, lease.session)
    assert "DELETE pods" not in ran.fake.kinds()
    place.used_at = long_ago
    await ran.until(lambda: "DELETE pods" in ran.fake.kinds())
    assert not ran.engine.inventory.is_open(name)
    (deleted,) = (request for request in ran.fake.asked if request.method == "DELETE")
    assert deleted.body == {"preconditions": {"uid": ran.fake.objects[PODS][name]["metadata"]["uid"]}}
    ran.fake.remove(PODS, name)
    await ran.until(lambda: name not in ran.engine.nodes() and not stored(ran.state))


async def test_sessions_leave_a_pod_that_is_evicted_or_whose_node_is_cordoned(
    ran: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[str] = []

    async def move(self: object, reason: str) -> None:
        moved.append(reason)

    monkeypatch.setattr("toolcelld_cluster.watch.NodeWatch.move", move)
    name = await ran.started()
    ran.fake.node("k1", {"topology.kubernetes.io/zone": "eu"}, unschedulable=True)
    await ran.until(lambda: moved == ["its node is cordoned"])
    assert not ran.engine.inventory.is_open(name)
    assert ran.engine.nodes()[name].draining
    ran.fake.node("k1", {"topology.kubernetes.io/zone": "us"})
    await ran.until(lambda: not ran.engine.nodes()[name].draining)
    assert ran.engine.inventory.node(name).labels == {"zone": "us"}
    await ran.engine.drain(name, "an operator", off=False)
    ran.fake.node("k2")
    ran.fake.objects[PODS][name]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    ran.fake.runs(name)
    await ran.until(lambda: moved[1:] == ["an operator", "the pod is deleted or evicted"])
    await ran.engine.drain(name, "", off=True)  # of no use any more
    assert ran.engine.nodes()[name].draining
    assert "is being made" in ran.engine.want("alice", NEEDS).said


async def test_a_pod_that_does_not_start_is_deleted_and_the_client_is_told_why(
    fake: tuple[FakeKubernetes, int], tmp_path: Path
) -> None:
    configuration = configured(tmp_path, fake[1], ("pods_max = 3", 'start = "1s"'))
    async with running(fake[0], configuration) as ran:
        await ran.engine.ready()
        name = await ran.wanted()
        pod = ran.fake.objects[PODS][name]
        said = "0/1 nodes are available\x1b]0;evil\x07"
        pod["status"] = {"conditions": [{"type": "PodScheduled", "status": "False", "message": said}]}
        ran.fake.put(PODS, pod)
        await ran.until(lambda: "0/1 nodes" in ran.engine.want("alice", NEEDS).said)
        assert "\x1b" not in ran.engine.want("alice", NEEDS).said
        await ran.until(
            lambda: (
                "did not start within 1 s: 0/1 nodes are available" in ran.engine.want("alice", NEEDS).said
            )
        )
        await ran.until(lambda: "DELETE pods" in ran.fake.kinds())
        assert "no pod is made of [kubernetes.pods.plain] for" in ran.engine.want("alice", NEEDS).said


async def test_a_pod_of_another_with_our_labels_is_no_node(
    ran: Running, caplog: pytest.LogCaptureFixture
) -> None:
    name = await ran.started()
    theirs = json.loads(json.dumps(ran.fake.objects[PODS][name]))
    theirs["metadata"] |= {"name": "toolcell-plain-evil\x1b[2J", "uid": "theirs"}
    ran.fake.put(PODS, theirs)
    ran.fake.runs(theirs["metadata"]["name"])
    await ran.until(lambda: "Placement has not made it" in caplog.text)
    assert list(ran.engine.nodes()) == [name]
    assert "\x1b" not in caplog.text
    replaced = json.loads(json.dumps(ran.fake.objects[PODS][name]))
    replaced["metadata"]["uid"] = "theirs"  # the pod was deleted, and another one has its name
    ran.fake.put(PODS, replaced)
    await ran.until(lambda: name not in ran.engine.nodes())


async def test_a_placement_that_starts_again_takes_the_pods_that_are_there(
    fake: tuple[FakeKubernetes, int], tmp_path: Path
) -> None:
    configuration = configured(tmp_path, fake[1])
    async with running(fake[0], configuration) as ran:
        await ran.engine.ready()
        first, gone = await ran.started(), await ran.started(Needs(volume="a", labels={"kind": "gpu"}))
    assert fake[0].kinds().count("DELETE pods") == 0
    fake[0].remove(PODS, gone)
    changed = configured(tmp_path, fake[1], ("toolcell:1", "toolcell:2"))
    async with running(fake[0], changed) as again:
        await again.engine.ready()
        await again.reports(first)
        lease = Held(f"s-{'0' * 24}", ALICE, "a", "", "", 2, {}, 100.0)
        again.book.report(0.0, first, [lease], takes=True)
        assert again.engine.inventory.sessions(first) == 1
        await again.until(lambda: again.engine.nodes()[first].draining)  # it has the image of before
        assert "is being made" in again.engine.want("alice", NEEDS).said
        assert (
            first
            in again.book.resolve(clock(), ALICE, "a:", {}, {}, session=lease.session, is_alive=True).node
        )
        with pytest.raises(Exception, match=f"{gone} has not said yet whether it is in use there"):
            again.book._check_known(clock(), "alone")


async def test_a_watch_goes_on_where_it_ended_and_begins_with_a_list_where_that_is_forgotten(
    ran: Running,
) -> None:
    lists = ran.fake.kinds().count("LIST pods")
    ran.fake.hang_up()
    name = await ran.started()
    assert ran.fake.kinds().count("LIST pods") == lists == 1
    ran.fake.oldest = ran.fake.version + 1
    ran.fake.version += 2
    ran.fake.objects[PODS].pop(name)  # and no watch tells of it
    ran.fake.hang_up()
    await ran.until(lambda: name not in ran.engine.nodes())
    assert ran.fake.kinds().count("LIST pods") == 2


async def test_without_the_api_server_sessions_are_placed_and_no_pod_is_made(
    ran: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = Needs(volume="a", resources={"gpu": 1.0})
    name = await ran.started()
    monkeypatch.setattr(module, "UNKNOWN_SECONDS", 0.0)
    ran.fake.says |= dict.fromkeys(("LIST pods", "WATCH pods", "WATCH nodes", "POST pods"), b"no answer")
    assert "is being made" in ran.engine.want("alice", gpu).said
    await ran.until(lambda: ran.fake.kinds().count("POST pods") == 2)
    ran.fake.hang_up()
    await ran.until(lambda: "API server of Kubernetes does not answer" in ran.engine.want("alice", gpu).said)
    assert ran.resolve().node == name
    ran.fake.says.clear()
    await ran.until(lambda: "DELETE pods" in ran.fake.kinds())  # it may have been made
    await ran.until(lambda: stored(ran.state) == [name])
    await ran.until(lambda: "the pod could not be made" in ran.engine.want("alice", gpu).said)


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (403, "forbidden: exceeded quota"),
        (500, "it answers with the status 500"),
        (307, "with the status 307"),
    ],
)
async def test_a_pod_that_the_api_server_refuses_leaves_nothing_behind(
    ran: Running, status: int, why: str
) -> None:
    said = json.dumps({"code": 403, "message": why}).encode() if status == 403 else b"<html>"
    ran.fake.says["POST pods"] = answer(status, said, "location: https://127.0.0.1:1/")
    ran.engine.want("alice", NEEDS)
    await ran.until(lambda: why in ran.engine.want("alice", NEEDS).said)
    await ran.until(lambda: not stored(ran.state))
    ran.fake.says["POST secrets"] = ran.fake.says.pop("POST pods")
    ran.engine.want("alice", Needs(volume="a", labels={"kind": "gpu"}))
    await ran.until(lambda: "DELETE pods" in ran.fake.kinds())


EVENTS = {
    "it answers with what is no JSON": (b"5\r\nhello\r\n1\r\n\n\r\n", chunk("[" * 200_000)),
    "it answers with what is no object": (chunk("[]"), chunk('{"type": "ADDED"}')),
    "it answers without a version": (chunk('{"object": {}}'),),
    "it tells of a change without a version": (
        chunk('{"type": "ADDED", "object": {"metadata": {"name": "x"}}}'),
        chunk('{"type": "ADDED", "object": {"metadata": 7}}'),
    ),
    "it tells of an object without a name": (
        chunk('{"type": "ADDED", "object": {"metadata": {"resourceVersion": "9"}}}'),
        chunk('{"type": "ADDED", "object": {"metadata": {"name": {}, "resourceVersion": "9"}}}'),
    ),
    "an event has more than 250000 bytes": (b"FFFFFF\r\n" + b"x" * 300_000,),
}


@pytest.mark.parametrize(
    ("why", "event"), [(why, event) for why, events in EVENTS.items() for event in events]
)
async def test_an_event_that_is_none_changes_nothing(
    ran: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, why: str, event: bytes
) -> None:
    monkeypatch.setattr(requests, "LINE_BYTES_MAX", 250_000)
    name = await ran.started()
    ran.fake.says["WATCH pods"] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + event
    ran.fake.hang_up()
    await ran.until(lambda: f"pods cannot be watched: {why}" in caplog.text)
    assert list(ran.engine.nodes()) == [name]
    del ran.fake.says["WATCH pods"]
    ran.fake.remove(PODS, name)
    await ran.until(lambda: not ran.engine.nodes())


LISTS = {
    "it answers with what is no list": (b"{}", b'{"metadata": {}, "items": {"x": 1}}'),
    "it answers without a version": (b'{"metadata": {}, "items": []}',),
    "it has more than 3 objects": (
        b'{"metadata": {"continue": "x"}, "items": [{"metadata": {"name": "x"}}]}',
    ),
    "it answers with more than 4000 bytes": (b" " * 5000,),
}


@pytest.mark.parametrize(("why", "body"), [(why, body) for why, bodies in LISTS.items() for body in bodies])
async def test_a_list_that_is_none_is_asked_for_again(
    fake: tuple[FakeKubernetes, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    why: str,
    body: bytes,
) -> None:
    monkeypatch.setattr(requests, "BODY_BYTES_MAX", 4000)
    monkeypatch.setattr(mirror, "OBJECTS_MAX", 3)
    fake[0].says["LIST pods"] = answer(200, body)
    async with running(fake[0], configured(tmp_path, fake[1])) as ran:
        await ran.until(lambda: f"pods cannot be watched: {why}" in caplog.text)
        assert "does not answer" in ran.engine.want("alice", NEEDS).said
        del ran.fake.says["LIST pods"]
        with anyio.fail_after(SECONDS_MAX):
            await ran.engine.ready()


async def test_a_token_is_read_each_time_and_a_wrong_one_is_refused_at_the_start(
    fake: tuple[FakeKubernetes, int], tmp_path: Path
) -> None:
    section = configured(tmp_path, fake[1]).kubernetes
    assert section is not None
    await check(section)
    (tmp_path / "token").write_text("another")
    with pytest.raises(FileError, match=r"\[kubernetes\] Unauthorized"):
        await check(section)
    for token in ("", "a\r\nx: y", "\xe9"):
        (tmp_path / "token").write_text(token)
        async with requests.opened(section) as api:
            with pytest.raises(requests.ApiFault, match="token"):
                await api.create(PODS, {})
    (tmp_path / "ca.crt").write_text("none")
    with pytest.raises(FileError, match=r"ca.crt cannot be used"):
        await check(section)


async def test_an_api_server_that_takes_connections_and_says_nothing_is_said_not_to_answer(
    tmp_path: Path, fake: tuple[FakeKubernetes, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "CONNECT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        section = configured(tmp_path, silent.getsockname()[1]).kubernetes
        assert section is not None
        async with requests.opened(section) as api:
            with pytest.raises(requests.ApiFault, match=r"it did not answer within 0.1 s"):
                await api.create(PODS, {})


async def test_down_deletes_what_placement_has_made_and_nothing_else(ran: Running) -> None:
    name = await ran.started()
    ran.fake.put(PODS, {"metadata": {"name": "another"}, "spec": {}})
    assert await delete_all(ran.engine._section, ran.engine._keys) == [name]
    assert [r.path for r in ran.fake.asked if r.method == "DELETE"] == [f"{PODS}/{name}"]


def test_a_pod_is_as_narrow_as_kubernetes_lets_it_be(tmp_path: Path) -> None:
    section = configured(tmp_path, 1).kubernetes
    assert section is not None
    offer = offer_for(section, section.pods["gpu"], NEEDS)
    made = manifest(section, "gpu", "toolcell-gpu-1", "ours", offer)
    spec = made["spec"]
    (container,) = spec["containers"]
    assert (spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (False, False)
    assert (spec["restartPolicy"], spec["terminationGracePeriodSeconds"]) == ("Always", 30)
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 2}}
    assert container["volumeMounts"][0] == {"name": "a", "mountPath": "/srv/a"}
    assert spec["runtimeClassName"] == "gvisor"
    read = read_pod({**made, "metadata": {**made["metadata"], "uid": "u"}, "status": {"podIP": "fd00::7"}})
    assert read is not None
    assert (read.offer, read.address) == (offer, "fd00::7")


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('server = "https', 'server = "http', "server"),
        ("https://127.0.0.1", "https://user:secret@127.0.0.1", "server"),
        ("pods.plain", "pods.Plain", "pods"),
        (
            'volumes = { a = "/srv/a", ',
            'spec = { containers = [] }\nvolumes = { a = "/srv/a", ',
            "containers is Placement's",
        ),
        (
            'runtimeClassName = "gvisor"',
            "automountServiceAccountToken = true",
            "automountServiceAccountToken is",
        ),
        ('runtimeClassName = "gvisor"', "x = 1979-05-27", "cannot be said in JSON"),
        (
            '[{ name = "a", persistentVolumeClaim = { claimName = "a" } }]',
            "[1]",
            "volumes is no list of tables",
        ),
        ('image = "toolcell:1"', 'image = ""', "image"),
        ("[tenants.alice]", "[ray]\nvolumes = {}\n[tenants.alice]", "in their place"),
    ],
)
def test_a_file_that_asks_for_more_than_it_may_is_refused(
    tmp_path: Path, old: str, new: str, why: str
) -> None:
    with pytest.raises(FileError, match=why):
        configured(tmp_path, 1, (old, new))


@pytest.mark.parametrize(
    "offer",
    [None, 7, "{", "{}", '{"volumes": {"a": "relative"}}', '{"volumes": {"a": "/../etc"}}', "x" * 70_000],
)
def test_a_pod_that_offers_what_none_does_is_left_out(offer: object) -> None:
    about = {"name": "x", "annotations": {"toolcell.dev/offer": offer}}
    assert read_pod({"metadata": about}) is None


@pytest.mark.parametrize("address", ["::", "224.0.0.1", "host", "127.0.0.1:80", 7, None])
def test_a_pod_with_an_address_that_is_none_has_none(address: object) -> None:
    about = {"name": "x", "annotations": {"toolcell.dev/offer": '{"volumes": {}}'}}
    read = read_pod(
        {"metadata": about, "status": {"podIP": address, "conditions": [7], "containerStatuses": 7}}
    )
    assert read is not None
    assert read.address == ""


def test_a_key_is_copied_for_its_user_alone_and_through_no_link(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "node.key"
    source.write_bytes(b"key")
    source.chmod(0o440)
    (tmp_path / "outside").write_bytes(b"")
    target.symlink_to(tmp_path / "outside")
    node.copy(str(source), str(target))
    assert (target.read_bytes(), target.stat().st_mode & 0o777) == (b"key", 0o600)
    assert not target.is_symlink()
    (tmp_path / "node.key.new").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="symbolic links"):
        node.copy(str(source), str(target))
    assert (tmp_path / "outside").read_bytes() == b""


def test_the_manifest_of_the_documentation_gives_placement_what_it_needs_and_no_more(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "kubernetes" / "toolcell.yaml").read_text()
    made = {(content["kind"], content["metadata"]["name"]): content for content in yaml.safe_load_all(text)}
    assert made["Role", "placement"]["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch", "create", "delete"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
    ]
    assert made["ClusterRole", "toolcell-placement"]["rules"] == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]}
    ]
    file = tmp_path / "placement.toml"
    file.write_text(made["ConfigMap", "placement"]["data"]["placement.toml"])
    file.chmod(0o600)
    section = load(str(file)).kubernetes
    assert section is not None
    ports = made["NetworkPolicy", "nodes"]["spec"]["ingress"][0]["ports"]
    assert (section.namespace, [{"port": section.port}]) == (
        made["Namespace", "toolcell"]["metadata"]["name"],
        ports,
    )


@pytest.mark.parametrize("host", ["10.1.2.3", "fd00::7"])
def test_the_program_of_a_pod_becomes_a_daemon_that_sees_nothing_of_kubernetes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    became: list[Any] = []

    def become(path: str, command: list[str], environment: dict[str, str]) -> None:
        became.extend([command, environment])

    monkeypatch.setattr("os.execve", become)
    monkeypatch.setenv("HOME", str(tmp_path / "state" / "home"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    words = (
        "--keys",
        str(tmp_path / "keys"),
        "--state",
        str(tmp_path / "state"),
        "--node",
        "n",
        "--drain",
        "20",
    )
    monkeypatch.setattr("sys.argv", ["node", *words, "--host", host, "--port", "7444"])
    (tmp_path / "keys").mkdir()
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o777)  # as a volume of Kubernetes is
    for name in ("ca.crt", "node.crt", "node.key", "tickets.key"):
        (tmp_path / "keys" / name).write_bytes(name.encode())
    before = os.umask(0o022)
    try:
        node.main()
    finally:
        os.umask(before)
    command, environment = became
    state = Path(command[command.index("--state") + 1])
    assert (state.stat().st_mode & 0o777, (state / "listen" / "node.key").read_bytes()) == (
        0o700,
        b"node.key",
    )
    assert command[command.index("--listen") + 1] == (f"[{host}]:7444" if ":" in host else f"{host}:7444")
    assert "--confined" in command
    assert not [name for name in environment if "KUBERNETES" in name]
