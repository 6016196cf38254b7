"""The engine of a Ray cluster, with a process in the place of the one that speaks with Ray."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import grpc
import pytest

from toolcelld.sessions.lease import clock
from toolcelld_cluster.book import Book, Client, Lease
from toolcelld_cluster.configuration import ClusterConfiguration, FileError, load
from toolcelld_cluster.environment import clean
from toolcelld_cluster.inventory import Inventory, Needs
from toolcelld_cluster.keys import keys
from toolcelld_cluster.process import StateLock, end, holder
from toolcelld_cluster.ray import driver_process
from toolcelld_cluster.ray import engine as module
from toolcelld_cluster.ray.driver import ALIVE, Driver, DriverFault, refuse_strangers
from toolcelld_cluster.ray.driver_process import DriverLost, DriverRefused, down, driver
from toolcelld_cluster.ray.engine import RayEngine
from toolcelld_cluster.server import run
from toolcelld_cluster.watch import NodeWatch

from .fake_driver import FILE

pytestmark = pytest.mark.anyio

ALICE = Client("alice", "aa" * 32)
SECONDS_MAX = 60
PLACEMENT = """
address = "127.0.0.1:0"
[ray]
labels = { tools = "yes" }
volumes = { a = "/srv/a" }
port = 1
[tenants.alice]
directories = ["a:"]
resources = { gpu = 4 }
"""


def node(name: str, **more: Any) -> dict[str, Any]:
    labels = {
        "toolcell.dev/node": name,
        "tools": "yes",
        "ray.io/node-id": f"id-{name}",
        **more.pop("labels", {}),
    }
    resources = {"GPU": 2.0, "CPU": 8.0, "node:127.0.0.1": 1.0, "GPU_group_0_ab": 1.0}
    known = {
        "id": f"id-{name}",
        "host": "127.0.0.1",
        "labels": labels,
        "resources": resources,
        "free": resources,
    }
    return {**known, **more}


@dataclass
class Watched:
    """An engine that runs."""

    file: Path
    engine: RayEngine
    book: Book

    def says(self, *nodes: dict[str, Any], started: str = "") -> None:
        """Have Ray have these nodes, one of them started for what waits."""
        made = self.file.with_suffix(".new")
        made.write_text(json.dumps({"nodes": nodes, "started": started}))
        made.replace(self.file)

    def asked(self, do: str) -> list[dict[str, Any]]:
        """The requests of a kind."""
        lines = map(json.loads, self.file.with_suffix(".asked").read_text().splitlines())
        return [line for line in lines if line["do"] == do]

    async def until(self, found: Callable[[], object]) -> None:
        with anyio.fail_after(SECONDS_MAX):
            while not found():
                await asyncio.sleep(0.01)

    def resolve(self, **resources: float) -> Lease:
        """A lease; the node has reported before."""
        for each in self.engine.nodes():
            self.book.report(0.0, each, (), takes=True)
        return self.book.resolve(clock(), ALICE, "a:", {}, resources)


def configured(directory: Path, more: str = "") -> ClusterConfiguration:
    """Return the configuration, with more lines in `[ray]`."""
    file = directory / "placement.toml"
    file.write_text(PLACEMENT.replace("port = 1\n", f"port = 1\n{more}"))
    file.chmod(0o600)
    return load(str(file))


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes report."""

    async def answers(watch: NodeWatch) -> None:
        watch.state = "ready"
        await asyncio.Event().wait()

    monkeypatch.setattr(NodeWatch, "run", answers)


@pytest.fixture
async def watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncIterator[Watched]:
    """With other values of `[ray]`, if the test is parametrized."""
    monkeypatch.setattr(driver_process, "DRIVER", "tests.cluster.fake_driver")
    monkeypatch.setattr(driver_process, "WORDS", ("-m",))
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    monkeypatch.setenv(FILE, str(tmp_path / "ray"))
    configuration = configured(tmp_path)
    assert configuration.ray is not None
    made = keys(configuration.state, "placement", [])
    book = Book(configuration.rules(), Inventory(), clock(), 1)
    section = configuration.ray.model_copy(update=getattr(request, "param", {}))
    engine = RayEngine(configuration, section, book, made)
    book.freed = engine.release
    found = Watched(tmp_path / "ray", engine, book)
    found.says(node("n1"), node("n2"), node("other", labels={"tools": "no"}))
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(engine.run())
        with anyio.fail_after(SECONDS_MAX):
            await engine.ready()
        yield found
        running.cancel()


async def test_the_nodes_are_those_with_the_label_and_have_what_ray_says(watched: Watched) -> None:
    assert sorted(watched.engine.nodes()) == ["n1", "n2"]
    known = watched.engine.inventory.node("n1")
    assert (known.address, known.volumes, known.labels) == ("127.0.0.1:1", {"a": "/srv/a"}, {"tools": "yes"})
    assert known.resources == {"gpu": 2.0, "cpu": 8.0}
    (start, _) = watched.asked("start")
    assert sorted(start["files"]) == [
        "ca.crt",
        "node.crt",
        "node.key",
        "tickets.key",
    ]  # and not the authority's key


async def test_a_node_that_is_gone_has_no_sessions_and_is_forgotten(watched: Watched) -> None:
    watched.says(node("n1"))
    await watched.until(lambda: list(watched.engine.nodes()) == ["n1"])
    assert "n2" not in watched.engine.inventory
    watched.says(node("n1", id="another"), node("n3"))  # a machine that was started again has another id
    await watched.until(lambda: sorted(watched.engine.nodes()) == ["n1", "n3"])


async def test_what_a_session_takes_is_kept_by_ray_until_its_lease_is_over(watched: Watched) -> None:
    lease = watched.resolve(gpu=1.0)
    assert await watched.engine.reserve(lease) == ""
    (asked,) = watched.asked("reserve")
    assert (asked["node_id"], asked["resources"]) == (f"id-{lease.node}", {"GPU": 1.0})
    watched.book.release(clock(), ALICE, lease.session)
    await watched.until(lambda: watched.asked("release"))
    assert watched.asked("release")[0]["keys"] == [asked["key"]]
    lease = watched.resolve(gpu=2.0)
    assert await watched.engine.reserve(lease) == "has given it to other work of Ray's"


async def test_what_other_work_of_ray_uses_is_not_free(watched: Watched) -> None:
    busy = {"GPU": 0.0, "CPU": 8.0}
    watched.says(node("n1", free=busy), node("n2", free=busy))
    needs = Needs(volume="a", resources={"gpu": 1.0})
    await watched.until(lambda: "n1 has 0 of gpu free" in watched.engine.inventory.faults(needs))


async def test_a_session_that_waits_for_a_resource_gets_that_of_a_node_that_ray_starts(
    watched: Watched,
) -> None:
    needs = Needs(volume="a", labels={"zone": "eu", "tools": "no"}, resources={"gpu": 1.0})
    hostile = Needs(volume="a", labels={"zone": "!eu"}, resources={"gpu": 1.0})
    halves = Needs(volume="a", resources={"gpu": 1.5})  # Ray refuses it
    asked = [hostile, halves, needs, needs, Needs(volume="b", resources={"gpu": 1.0}), Needs(volume="a")]
    said = ["", module.ASKED, module.ASKED, module.ASKED, "", ""]
    assert [watched.engine.want("alice", wanted).said for wanted in asked] == said
    await watched.until(lambda: len(watched.asked("want")) == 2)
    (_, want) = watched.asked("want")
    assert (want["resources"], want["labels"]) == ({"GPU": 1.0}, {"tools": "yes", "zone": "eu"})
    busy = {"GPU": 0.0, "CPU": 8.0}
    needs = Needs(volume="a", labels={"zone": "eu"}, resources={"gpu": 1.0})
    new = node("n3", labels={"zone": "eu"}, free=busy)  # what waits has it
    watched.says(node("n1", free=busy), node("n2", free=busy), new, started="id-n3")
    await watched.until(lambda: "n3" in watched.engine.nodes())
    lease = watched.resolve(gpu=1.0)
    assert lease.node == "n3"
    assert await watched.engine.reserve(lease) == ""
    assert watched.asked("reserve")[0]["instead"] == [want["key"]]
    await watched.until(lambda: "n3 has 0 of gpu free" in watched.book.inventory.faults(needs))
    assert len(watched.asked("want")) == 2


@pytest.mark.parametrize("watched", [{"idle": 0.0}], indirect=True, ids=["idle"])
async def test_a_node_that_does_not_answer_keeps_its_daemon(watched: Watched) -> None:
    """It may have sessions that it has not reported, as Placement has been started again."""
    await watched.until(lambda: len(watched.asked("nodes")) > 3)
    assert sorted(watched.engine.nodes()) == ["n1", "n2"]
    assert not watched.asked("rest")


@pytest.mark.usefixtures("answering")
@pytest.mark.parametrize("watched", [{"idle": 0.0}], indirect=True, ids=["idle"])
async def test_a_node_that_is_idle_has_no_daemon_until_a_session_waits_for_it(watched: Watched) -> None:
    await watched.until(lambda: not list(watched.engine.nodes()))
    begun = len(watched.asked("start"))
    watched.engine.want("alice", Needs(volume="a", labels={"zone": "moon"}))  # which none of them has had
    watched.says(node("n1"), node("n2"), started="id-n2")
    watched.engine.want("alice", Needs(volume="a", resources={"gpu": 1.0}))
    await watched.until(lambda: list(watched.engine.nodes()) == ["n2"])
    lease = watched.resolve(gpu=1.0)
    assert await watched.engine.reserve(lease) == ""
    assert {each["node_id"] for each in watched.asked("start")[begun:]} == {"id-n2"}
    ended = len(watched.asked("rest"))
    watched.book.release(clock(), ALICE, lease.session)
    await watched.until(lambda: not list(watched.engine.nodes()))
    await watched.until(lambda: {each["node_id"] for each in watched.asked("rest")[ended:]} == {"id-n2"})


async def test_without_ray_sessions_are_placed_by_what_is_known_and_nothing_is_kept(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 3600.0)
    with pytest.raises(DriverLost):
        await watched.engine.ask("end")
    await watched.until(lambda: not watched.engine.answers)
    assert watched.resolve().node
    assert "Ray's control plane has not answered" in await watched.engine.reserve(watched.resolve(gpu=1.0))


async def test_a_process_that_hangs_in_rays_library_is_replaced(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STUCK_SECONDS", 0.5)
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)
    watched.file.with_suffix(".stuck").touch()
    await watched.until(lambda: not watched.file.with_suffix(".stuck").exists())
    monkeypatch.setattr(module, "STUCK_SECONDS", 3600.0)  # for the next one
    watched.says(node("n1"), node("n3"))
    await watched.until(lambda: "n3" in watched.engine.nodes())


async def test_a_cluster_that_cannot_be_used_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_process, "DRIVER", "tests.cluster.fake_driver")
    monkeypatch.setattr(driver_process, "WORDS", ("-m",))
    monkeypatch.setenv(FILE, str(tmp_path / "ray"))
    (tmp_path / "ray").write_text(json.dumps({"refused": "the Ray cluster serves strangers"}))
    configuration = configured(tmp_path)
    assert configuration.ray is not None
    with pytest.raises(DriverRefused, match="serves strangers"):
        async with driver(configuration.ray):
            pass
    with pytest.raises(FileError, match=r"\[ray\] the Ray cluster serves strangers"):
        await run(configuration, [])


@pytest.mark.parametrize(
    ("stuck", "bound"), [("connect", "CONNECT_SECONDS"), ("down", "DOWN_SECONDS")], ids=str
)
async def test_a_control_plane_that_never_answers_is_given_up(
    stuck: str, bound: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_process, "DRIVER", "tests.cluster.fake_driver")
    monkeypatch.setattr(driver_process, "WORDS", ("-m",))
    monkeypatch.setattr(driver_process, bound, 0.1)
    monkeypatch.setenv(FILE, str(tmp_path / "ray"))
    (tmp_path / "ray").write_text(json.dumps({"stuck": stuck}))
    configuration = configured(tmp_path, 'drain = "100ms"\n')
    assert configuration.ray is not None
    with anyio.fail_after(SECONDS_MAX), pytest.raises(DriverLost):
        await down(configuration.ray)


@pytest.mark.parametrize("code", [grpc.StatusCode.OK, grpc.StatusCode.UNAUTHENTICATED])
def test_a_control_plane_that_answers_a_stranger_is_refused(code: grpc.StatusCode) -> None:
    def answer(request: bytes, context: Any) -> bytes:
        if code is not grpc.StatusCode.OK:
            context.abort(code, "a token")
        return b""

    service, _, method = ALIVE.removeprefix("/").rpartition("/")
    handler = grpc.method_handlers_generic_handler(
        service, {method: grpc.unary_unary_rpc_method_handler(answer)}
    )
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool, handlers=[handler])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            if code is grpc.StatusCode.OK:
                with pytest.raises(DriverFault, match="RAY_AUTH_MODE=token"):
                    refuse_strangers(f"127.0.0.1:{port}")
            else:
                refuse_strangers(f"127.0.0.1:{port}")
        finally:
            server.stop(None).wait()


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("127.0.0.1:1", "cannot be reached"),
        ("127.0.0.1:99999", "cannot be reached"),
        ("ray://a:1", "no HOST"),
    ],
)
def test_a_control_plane_that_is_gone_is_not_waited_for(address: str, why: str) -> None:
    with pytest.raises(DriverFault, match=why):
        Driver(address, "toolcell")


def test_a_daemon_gets_no_variable_of_ray() -> None:
    of_ray = {"RAY_AUTH_TOKEN": "x", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": "/ray", "LD_PRELOAD": "x"}
    own = {"PATH": "/bin", "HOME": "/home/a", "LC_ALL": "C.UTF-8", "XDG_STATE_HOME": "/s"}
    assert clean({**of_ray, **own}) == own


def test_one_placement_has_a_state_directory(tmp_path: Path) -> None:
    assert holder(str(tmp_path)) == 0
    assert not end(str(tmp_path))
    with StateLock(str(tmp_path)):
        child = os.fork()
        if not child:
            try:
                StateLock(str(tmp_path)).__enter__()
            except FileError:
                os._exit(holder(str(tmp_path)) != os.getppid())
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert holder(str(tmp_path)) == 0
