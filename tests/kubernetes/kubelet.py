"""Stands for the kubelet of a node: it registers the node, renews its lease, and runs the container of each pod as a process.

It is a double, and says so: there is no image, no namespace and no other user. A mount is a path that is replaced in the words of the
container, and an address of a pod is one of the loopback. What Kubernetes decides (which node, when a pod is deleted, and what belongs
to it) is decided by the real control plane.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import httpx2

PODS = "/api/v1/pods"
LOOK_SECONDS = 0.2
PATCH = {"content-type": "application/strategic-merge-patch+json"}


def stamp() -> str:
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1e6):06d}Z"


@dataclass
class Container:
    """A pod that runs here."""

    path: str
    uid: str
    address: str
    command: list[str]
    environment: dict[str, str]
    directory: Path
    port: int
    grace_seconds: float
    process: subprocess.Popen[bytes] | None = None
    killed_at: float = 0.0
    ready: bool = False
    restarts: int = 0


@dataclass
class Kubelet:
    """The node."""

    told: dict[str, Any]
    running: dict[str, Container] = field(default_factory=dict[str, Container])
    count: int = 0
    over: bool = False

    def __post_init__(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.told["authority"])
        self.client = httpx2.Client(
            base_url=self.told["server"],
            verify=context,
            trust_env=False,
            timeout=30,
            headers={"authorization": f"Bearer {self.told['token']}"},
        )

    def ask(
        self, method: str, path: str, content: dict[str, Any] | None = None, **query: str
    ) -> dict[str, Any]:
        headers = PATCH if method == "PATCH" else {"content-type": "application/json"}
        body = None if content is None else json.dumps(content)
        answer = self.client.request(method, path, params=query, content=body, headers=headers)
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    def register(self) -> None:
        """Make the Node, and its Lease."""
        name = self.told["name"]
        labels = {"kubernetes.io/hostname": name, **self.told["labels"]}
        self.ask("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
        capacity = {"cpu": "8", "memory": "8Gi", "pods": "100", **self.told["resources"]}
        self.ask(
            "PATCH",
            f"/api/v1/nodes/{name}/status",
            {"status": {"capacity": capacity, "allocatable": capacity, "conditions": [self.condition()]}},
        )
        spec = {"holderIdentity": name, "leaseDurationSeconds": 20, "renewTime": stamp()}
        self.ask("POST", self.leases, {"metadata": {"name": name}, "spec": spec})

    @property
    def leases(self) -> str:
        return "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"

    def condition(self) -> dict[str, str]:
        now = stamp()[:19] + "Z"
        return {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }

    def beat(self) -> None:
        """Renew the lease, and look at the pods, until told to stop."""
        beaten = 0.0
        while not self.over:
            try:
                if time.monotonic() - beaten > 2:
                    beaten = time.monotonic()
                    self.ask("PATCH", f"{self.leases}/{self.told['name']}", {"spec": {"renewTime": stamp()}})
                self.look()
            except httpx2.HTTPError as error:
                print(stamp(), repr(error), flush=True)
            time.sleep(LOOK_SECONDS)
        for container in self.running.values():
            if container.process is not None:
                os.killpg(container.process.pid, signal.SIGKILL)
                container.process.wait()

    def look(self) -> None:
        mine = self.ask("GET", PODS, fieldSelector=f"spec.nodeName={self.told['name']}")["items"]
        seen: set[str] = set()
        for pod in mine:
            about = pod["metadata"]
            path = f"/api/v1/namespaces/{about['namespace']}/pods/{about['name']}"
            seen.add(about["uid"])
            container = self.running.get(about["uid"])
            if about.get("deletionTimestamp"):
                self.stop(path, about["uid"], container)
            elif container is None:
                self.prepare(path, pod)
            else:
                self.keep(container)
        for uid in self.running.keys() - seen:
            self.stop("", uid, self.running[uid])

    def prepare(self, path: str, pod: dict[str, Any]) -> None:
        """Lay out what a pod has, once its Secret is there."""
        about, spec = pod["metadata"], pod["spec"]
        (told,) = spec["containers"]
        directory = Path(self.told["directory"]) / about["name"]
        places: dict[str, str] = {}
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        for mount in told["volumeMounts"]:
            volume = volumes[mount["name"]]
            place = directory / mount["name"]
            if "secret" in volume:
                secrets = f"/api/v1/namespaces/{about['namespace']}/secrets"
                try:
                    data = self.ask("GET", f"{secrets}/{volume['secret']['secretName']}")["data"]
                except httpx2.HTTPStatusError:
                    return  # it is made after the pod
                place.mkdir(parents=True, exist_ok=True)
                for name, text in data.items():
                    (place / name).write_bytes(base64.b64decode(text))
                    (place / name).chmod(volume["secret"]["defaultMode"])
            elif "emptyDir" in volume:
                place.mkdir(parents=True, exist_ok=True)
            else:
                assert volume["hostPath"]["path"] == mount["mountPath"]
                continue
            places[mount["mountPath"]] = str(place)
        self.count += 1
        address = f"127.0.{self.told['number']}.{self.count}"

        def placed(text: str) -> str:
            for mounted, place in places.items():
                text = text.replace(mounted, place)
            return text.replace("$(POD_IP)", address)

        words = [placed(word) for word in (*told["command"], *told["args"])]
        words[0] = sys.executable
        environment = {each["name"]: placed(each.get("value", address)) for each in told["env"]}
        environment |= {"PATH": os.environ["PATH"], "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
        self.running[about["uid"]] = Container(
            path,
            about["uid"],
            address,
            words,
            environment,
            directory,
            told["ports"][0]["containerPort"],
            spec["terminationGracePeriodSeconds"],
        )

    def keep(self, container: Container) -> None:
        """Have the container run, and tell when it does."""
        if container.process is None or container.process.poll() is not None:
            container.restarts += container.process is not None
            container.ready = False
            with (container.directory / "log").open("ab") as log:
                container.process = subprocess.Popen(
                    container.command,
                    env=container.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd="/",
                    start_new_session=True,
                )
        if not container.ready:
            try:
                socket.create_connection((container.address, container.port), timeout=0.5).close()
            except OSError:
                return
            container.ready = True
            conditions = [{"type": "Ready", "status": "True"}]
            status = {"phase": "Running", "podIP": container.address, "conditions": conditions}
            self.ask("PATCH", f"{container.path}/status", {"status": status})

    def stop(self, path: str, uid: str, container: Container | None) -> None:
        """End the container as the kubelet does: a signal, the time of grace, and the end."""
        process = container.process if container is not None else None
        if container is not None and process is not None and process.poll() is None:
            if not container.killed_at:
                container.killed_at = time.monotonic() + container.grace_seconds
                process.terminate()
            elif time.monotonic() > container.killed_at:
                os.killpg(process.pid, signal.SIGKILL)
            return
        self.running.pop(uid, None)
        if path:
            body = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
            self.ask("DELETE", path, body)


def main() -> None:
    """Run until SIGTERM."""
    kubelet = Kubelet(json.loads(sys.argv[1]))

    def stop(number: int, frame: FrameType | None) -> None:
        kubelet.over = True

    signal.signal(signal.SIGTERM, stop)
    kubelet.register()
    beating = threading.Thread(target=kubelet.beat)
    beating.start()
    while beating.is_alive():
        beating.join(0.5)


if __name__ == "__main__":
    main()
