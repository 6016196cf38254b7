"""The process that speaks with Ray for Placement: a line of JSON for each request, and one for each answer.

    {"id": 7, "do": "nodes", ...}        →   {"id": 7, "value": ...} or {"id": 7, "error": "..."}

The first line says which cluster; its answer has the id 0, and is an error if the cluster cannot be used. Requests are answered
by a few threads, in any order. The process ends when its standard input does.

No other module imports Ray. What is read of it here is what Ray documents, but for the resources that are free on each node.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, cast

import grpc

from toolcelld_cluster.ray.node import NodeDaemon, NodeOptions

THREADS: Final = 8
ACTOR: Final = "toolcelld-"
"""Before the id of the node: the name of its actor, in our namespace."""
ANSWER_SECONDS: Final = 75.0
"""In which the actor of a node starts its daemon: a worker of Ray's, and the daemon's own start."""
RESERVE_SECONDS: Final = 2.0
STRANGER_SECONDS: Final = 5.0
ALIVE: Final = "/ray.rpc.NodeInfoGcsService/CheckAlive"
"""What each process of Ray's asks first."""
NODE_LABEL: Final = "ray.io/node-id"
OPEN: Final = (
    "the Ray cluster serves any process that can reach {address}, and code that runs in it runs as the user of each node; "
    "start its nodes with RAY_AUTH_MODE=token, or with RAY_USE_TLS=1 and certificates"
)


class DriverFault(Exception):
    """A request cannot be answered; the text says why."""


class Driver:
    """A connection to a Ray cluster."""

    def __init__(self, address: str, namespace: str) -> None:
        reach(address or os.environ.get("RAY_ADDRESS", ""))
        try:
            self._ray: Any = importlib.import_module("ray")
        except ImportError as error:
            raise DriverFault("Ray is not installed") from error
        self._ray.init(
            address=address or "auto",
            namespace=namespace,
            log_to_driver=False,
            configure_logging=False,
        )
        refuse_strangers(self._ray.get_runtime_context().gcs_address)
        self._state: Any = importlib.import_module("ray._private.state")
        self._groups: Any = importlib.import_module("ray.util.placement_group")
        self._strategies: Any = importlib.import_module("ray.util.scheduling_strategies")
        self._kept = f"{namespace}-kept-"
        """Before the names of placement groups, whose table is of all namespaces."""
        self._actors: dict[str, Any] = {}  # by the id of the node

    def nodes(self) -> dict[str, Any]:
        """Return the nodes and what of them is free, and the keys of what is kept for sessions with the node of each, which is
        empty while Ray has none for it.
        """
        free: Any = self._state.available_resources_per_node()
        found: list[dict[str, Any]] = [
            {
                "id": node["NodeID"],
                "host": node["NodeManagerAddress"],
                "labels": node.get("Labels") or {},
                "resources": node["Resources"],
                "free": free.get(node["NodeID"], {}),
            }
            for node in self._ray.nodes()
            if node["Alive"]
        ]
        return {"nodes": found, "kept": self._groups_kept()}

    def start(
        self, node_id: str, options: dict[str, Any], files: dict[str, str], volumes: dict[str, str]
    ) -> dict[str, str]:
        """Have a daemon run on a node; return which of the volumes are there."""
        actor = self._actors.get(node_id)
        if actor is None:
            cls = self._ray.remote(NodeDaemon)
            actor = self._actors[node_id] = cls.options(
                name=f"{ACTOR}{node_id}",
                get_if_exists=True,
                lifetime="detached",
                num_cpus=0,
                max_restarts=-1,
                max_task_retries=0,
                max_concurrency=4,
                scheduling_strategy=self._strategies.NodeAffinitySchedulingStrategy(node_id, soft=False),
            ).remote(NodeOptions(**options))
        decoded = {name: base64.b64decode(text) for name, text in files.items()}
        try:
            return cast(
                "dict[str, str]", self._ray.get(actor.serve.remote(decoded, volumes), timeout=ANSWER_SECONDS)
            )
        except self._ray.exceptions.RayActorError:
            del self._actors[node_id]
            raise
        except self._ray.exceptions.RayTaskError as error:
            raise DriverFault(str(error.cause)) from None

    def reserve(self, key: str, node_id: str, resources: dict[str, float], instead: list[str]) -> bool:
        """Keep resources of a node; return whether there were as many, with what is given back for it."""
        self.release(instead)
        group = self._keep(key, resources, {NODE_LABEL: node_id})
        if group.wait(RESERVE_SECONDS):
            return True
        self._groups.remove_placement_group(group)
        return False

    def want(self, key: str, resources: dict[str, float], labels: dict[str, str]) -> None:
        """Keep resources of any node with these labels, when there is one: Ray's autoscaler sees what waits."""
        self._keep(key, resources, labels)

    def release(self, keys: list[str]) -> None:
        """Give back what was kept."""
        for key in self._groups_kept().keys() & set(keys):
            self._remove(f"{self._kept}{key}")

    def _keep(self, key: str, resources: dict[str, float], labels: dict[str, str]) -> Any:
        return self._groups.placement_group(
            [resources],
            strategy="STRICT_PACK",
            name=f"{self._kept}{key}",
            lifetime="detached",
            bundle_label_selector=[labels],
        )

    def down(self) -> list[str]:
        """End all daemons, and give everything back; return the nodes that had one."""
        names = [name for name in self._ray.util.list_named_actors() if name.startswith(ACTOR)]
        self._end([self._ray.get_actor(name) for name in names])
        for key in self._groups_kept():
            self._remove(f"{self._kept}{key}")
        return [name.removeprefix(ACTOR) for name in names]

    def rest(self, node_id: str) -> None:
        """End the daemon of a node, which Ray has for idle then."""
        self._actors.pop(node_id, None)
        with contextlib.suppress(ValueError):  # there is none
            self._end([self._ray.get_actor(f"{ACTOR}{node_id}")])

    def _end(self, actors: list[Any]) -> None:
        told = [actor.stop.remote() for actor in actors]
        if told:
            self._ray.wait(told, num_returns=len(told), timeout=ANSWER_SECONDS)
        for actor in actors:
            self._ray.kill(actor, no_restart=True)

    def _groups_kept(self) -> dict[str, str]:
        """Return the groups of ours that are there by their keys, with the node of each."""
        table: dict[str, dict[str, Any]] = self._groups.placement_group_table()
        return {
            group["name"].removeprefix(self._kept): group["bundles_to_node_id"].get(0) or ""
            for group in table.values()
            if group["name"].startswith(self._kept) and group["state"] != "REMOVED"
        }

    def _remove(self, name: str) -> None:
        with contextlib.suppress(ValueError):  # it is gone
            self._groups.remove_placement_group(self._groups.get_placement_group(name))


def reach(address: str) -> None:
    """Raise DriverFault if nothing listens at a HOST:PORT, which Ray itself waits for; what Ray finds by itself is not tried."""
    if "://" in address:
        raise DriverFault(f"{address} is no HOST:PORT of a Ray cluster's control plane")
    host, _, port = address.rpartition(":")
    if host and port.isdecimal():
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=STRANGER_SECONDS).close()
        except (OSError, OverflowError) as error:
            raise DriverFault(f"{address} cannot be reached: {error}") from error


def refuse_strangers(address: str) -> None:
    """Raise DriverFault if the cluster answers a process without a token and without TLS."""
    with grpc.insecure_channel(address) as channel:
        ask = cast("Callable[..., bytes]", channel.unary_unary(ALIVE))
        try:
            ask(b"", timeout=STRANGER_SECONDS)
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNAVAILABLE):
                return
            raise DriverFault(f"{address} does not say whether it wants a token: {error.code()}") from None
    raise DriverFault(OPEN.format(address=address))


def _answers(driver: Driver, write: Callable[[Mapping[str, object]], None]) -> None:
    """Answer requests until the end of the input."""
    with ThreadPoolExecutor(THREADS) as pool:
        for line in sys.stdin:
            pool.submit(_answer, driver, json.loads(line), write)
        os._exit(0)  # what is asked of Ray may never end


def _answer(driver: Driver, request: dict[str, Any], write: Callable[[Mapping[str, object]], None]) -> None:
    number, name = request.pop("id"), request.pop("do")
    try:
        write({"id": number, "value": getattr(driver, name)(**request)})
    except Exception as error:  # noqa: BLE001  # of Ray, of any kind; the asker is told
        text = str(error).strip() or type(error).__name__
        write({"id": number, "error": text[-2000:]})


def main() -> None:
    """Connect, and answer until the end of the input."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries may write there
    lock = threading.Lock()

    def write(answer: Mapping[str, object]) -> None:
        with lock:
            out.write(f"{json.dumps(answer)}\n")

    first = json.loads(sys.stdin.readline())
    try:
        driver = Driver(first["address"], first["namespace"])
    except Exception as error:  # noqa: BLE001  # of Ray, of any kind; the asker is told
        write({"id": 0, "error": str(error).strip() or type(error).__name__})
        sys.exit(1)
    write({"id": 0, "value": {}})
    _answers(driver, write)


if __name__ == "__main__":
    main()
