"""The file of Placement: where it serves, which nodes there are, and what each tenant may have."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import stat
import tomllib
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
)

from toolcell._units import parse_seconds
from toolcelld.config.values import tcp_address
from toolcelld_cluster.book import LABELS_MAX, TEXT_MAX
from toolcelld_cluster.inventory import Node
from toolcelld_cluster.rules import PlacementRules, Tenant

OTHERS_MAX: Final = 4
TRUST_MAX: Final = 10_000
"""Digests of all tenants, which a node is told at once: some hundred kilobytes, of the four megabytes that a request may have."""
FILE_BYTES_MAX: Final = 16 * 1024 * 1024
"""5,000 nodes have some two megabytes."""
NODE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}(?:\.[A-Za-z0-9_-]{1,63}){0,8}")
SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
DNS_LABEL: Final = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
MANIFEST_BYTES_MAX: Final = 64 * 1024
OURS: Final = frozenset({
    *("containers", "automountServiceAccountToken", "enableServiceLinks", "restartPolicy", "terminationGracePeriodSeconds"),
    *("name", "image", "command", "args", "ports", "readinessProbe"),
})  # fmt: skip
"""What a template says neither of its pod nor of its container."""
LISTS: Final = frozenset({"volumes", "volumeMounts", "env"})
_LABEL: Final = r"^[A-Za-z0-9]([A-Za-z0-9._/-]{0,300}[A-Za-z0-9])?$"
_VOLUME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


class FileError(Exception):
    """The file cannot be used; the text says why, a line for each mistake."""


def _absolute(path: str) -> str:
    if not os.path.isabs(path) or "\0" in path or ".." in path.split("/"):
        raise ValueError("is no absolute path")
    return path


def _address(text: str) -> str:
    tcp_address(text)
    return text


def _duration(value: object) -> object:
    return parse_seconds(value) if isinstance(value, str) else value


def _manifest(found: dict[str, Any]) -> dict[str, Any]:
    """Return what is no table of Kubernetes' words as an error."""
    try:
        text = json.dumps(found, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"cannot be said in JSON: {error}") from error
    if len(text) > MANIFEST_BYTES_MAX:
        raise ValueError(f"has more than {MANIFEST_BYTES_MAX} bytes")
    return found


Seconds = Annotated[float, BeforeValidator(_duration)]
Text = Annotated[str, Field(min_length=1, max_length=TEXT_MAX)]
Amount = Annotated[float, Field(ge=0, le=1e9)]
Volume = Annotated[str, Field(pattern=_VOLUME.pattern)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NodeSection(_Section):
    """A node."""

    address: Annotated[str, AfterValidator(_address)]
    volumes: dict[Volume, Annotated[str, AfterValidator(_absolute)]]
    labels: dict[Text, Text] = Field(default={}, max_length=LABELS_MAX)
    resources: dict[Text, Amount] = Field(default={}, max_length=LABELS_MAX)
    sessions: int = Field(default=100, ge=1, le=100_000)
    drain: bool = False


class RaySection(_Section):
    """The nodes of a Ray cluster in place of those of the file."""

    address: Annotated[str, Field(max_length=300)] = ""  # HOST:PORT of its control plane; empty: RAY_ADDRESS
    namespace: Volume = "toolcell"
    labels: dict[Text, Text] = Field(default={}, max_length=LABELS_MAX)  # what a node has to have
    volumes: dict[Volume, Annotated[str, AfterValidator(_absolute)]]  # on each node where the directory is
    port: int = Field(default=7444, ge=1, le=65_535)
    sessions: int = Field(default=100, ge=1, le=100_000)
    state: Annotated[str, AfterValidator(_absolute)] | Literal[""] = ""
    drain: Seconds = Field(default=10.0, ge=0.0, le=3600.0)
    idle: Seconds | None = Field(default=None, ge=10.0, le=86_400.0)  # None: a daemon stays


class PodOffer(_Section):
    """What a pod offers to sessions."""

    volumes: dict[Volume, Annotated[str, AfterValidator(_absolute)]]
    labels: dict[Text, Text] = Field(default={}, max_length=LABELS_MAX)
    resources: dict[Text, Amount] = Field(default={}, max_length=LABELS_MAX)
    sessions: int = Field(default=20, ge=1, le=100_000)


class PodSection(PodOffer):
    """A template of pods."""

    labels: dict[Text, Text] = Field(default={}, max_length=LABELS_MAX // 2)
    image: str = Field(default="", max_length=1000)  # empty: that of [kubernetes]
    spec: Annotated[dict[str, Any], AfterValidator(_manifest)] = {}  # of the pod, in the words of Kubernetes
    container: Annotated[dict[str, Any], AfterValidator(_manifest)] = {}

    @field_validator("spec", "container")
    @classmethod
    def _check(cls, found: dict[str, Any]) -> dict[str, Any]:
        """Refuse what Placement says itself, and lists that are none."""
        for key in found.keys() & OURS:
            raise ValueError(f"{key} is Placement's to say")
        for key in found.keys() & LISTS:
            if not isinstance(found[key], list) or not all(isinstance(row, dict) for row in found[key]):
                raise ValueError(f"{key} is no list of tables")
        return found


class KubernetesSection(_Section):
    """Pods that Placement makes in place of the nodes of the file."""

    server: Annotated[str, Field(pattern=r"^https://[A-Za-z0-9.:\[\]-]{1,300}$")] = (
        "https://kubernetes.default.svc"
    )
    authority: Annotated[str, AfterValidator(_absolute)] = f"{SERVICE_ACCOUNT}/ca.crt"
    token: Annotated[str, AfterValidator(_absolute)] = f"{SERVICE_ACCOUNT}/token"
    namespace: str = Field(default="toolcell", pattern=DNS_LABEL)
    image: str = Field(min_length=1, max_length=1000)
    labels: dict[Text, Annotated[str, Field(pattern=_LABEL)]] = Field(default={}, max_length=LABELS_MAX // 2)
    """Labels of Kubernetes' nodes that sessions may ask for, by the names that they use."""
    port: int = Field(default=7444, ge=1024, le=65_535)
    user: int = Field(default=1000, ge=1, le=2**31 - 1)
    pods_max: int = Field(default=20, ge=1, le=5000)
    start: Seconds = Field(default=300.0, ge=1.0, le=86_400.0)
    idle: Seconds = Field(default=600.0, ge=1.0, le=30 * 86_400.0)
    drain: Seconds = Field(default=30.0, ge=0.0, le=3600.0)
    pods: dict[Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?$")], PodSection] = Field(
        min_length=1, max_length=64
    )


class TenantSection(_Section):
    """A tenant, which is the common name of a client's certificate."""

    directories: list[str] = Field(max_length=1000)
    sessions: int = Field(default=50, ge=1, le=1_000_000)
    resources: dict[Text, Amount] = Field(default={}, max_length=LABELS_MAX)
    operator: bool = False
    trust: list[Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]] = Field(default=[], max_length=TRUST_MAX)

    def rules(self) -> Tenant:
        """Return the same as the policy knows it. Raises ValueError."""
        directories: list[tuple[str, str]] = []
        for text in self.directories:
            volume, colon, path = text.partition(":")
            parts = [part for part in path.split("/") if part not in ("", ".")]
            if not colon or _VOLUME.fullmatch(volume) is None or ".." in parts:
                raise ValueError(f"{text!r} is no VOLUME:PATH")
            directories.append((volume, "/".join(parts)))
        return Tenant(
            directories=tuple(directories),
            sessions_max=self.sessions,
            resources=self.resources,
            operator=self.operator,
            trust=frozenset(self.trust),
        )


class ClusterConfiguration(_Section):
    """The file."""

    address: Annotated[str, AfterValidator(_address)]
    others: list[Annotated[str, AfterValidator(_address)]] = Field(default=[], max_length=OTHERS_MAX)
    node: str = Field(default="placement", pattern=f"^{NODE_NAME.pattern}$")
    state: Annotated[str, AfterValidator(_absolute)] = ""
    lease: Seconds = Field(default=10.0, ge=1.0, le=3600.0)
    ticket: Seconds = Field(default=300.0, ge=10.0, le=86_400.0)
    exclusive: list[Volume] = []
    nodes: dict[Annotated[str, Field(pattern=f"^{NODE_NAME.pattern}$")], NodeSection] = {}
    ray: RaySection | None = None
    kubernetes: KubernetesSection | None = None
    tenants: dict[Text, TenantSection]

    def rules(self) -> PlacementRules:
        """Return what holds for leases. Raises ValueError."""
        if sum(map(bool, (self.nodes, self.ray, self.kubernetes))) != 1:
            raise ValueError("there have to be [nodes.NAME], or [ray] or [kubernetes] in their place")
        if self.others and not self.nodes:
            raise ValueError(
                "only with [nodes.NAME] there are others: what most of the nodes are is not known"
            )
        trusted = {name: sorted(tenant.trust) for name, tenant in self.tenants.items() if tenant.trust}
        if sum(map(len, trusted.values())) > TRUST_MAX:
            raise ValueError(f"tenants.NAME.trust: there are more than {TRUST_MAX} digests")
        version = hashlib.sha256(json.dumps(trusted, sort_keys=True).encode()).hexdigest()
        return PlacementRules(
            tenants={name: tenant.rules() for name, tenant in self.tenants.items()},
            exclusive=frozenset(self.exclusive),
            lease_seconds=self.lease,
            ticket_seconds=self.ticket,
            elects=secrets.token_hex(8) if self.others else "",
            trust=version if trusted else "",
        )

    def inventory(self) -> dict[str, Node]:
        """Return the nodes, by name."""
        return {
            name: Node(
                name=name,
                address=section.address,
                volumes=section.volumes,
                labels=section.labels,
                resources=section.resources,
                sessions_max=section.sessions,
            )
            for name, section in self.nodes.items()
        }


def load(path: str) -> ClusterConfiguration:
    """Read a file. Blocks. Raises FileError."""
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}") from error
    if status.st_uid not in (os.geteuid(), 0) or status.st_mode & 0o022:
        mode = stat.S_IMODE(status.st_mode)
        raise FileError(f"{path} can be written by others (owner {status.st_uid}, mode {mode:o})")
    if len(content) > FILE_BYTES_MAX:
        raise FileError(f"{path} is larger than {FILE_BYTES_MAX} bytes")
    try:
        values: dict[str, Any] = tomllib.loads(content.decode())
        values.setdefault("state", os.path.join(os.path.dirname(os.path.abspath(path)), "placement"))
        found = ClusterConfiguration.model_validate(values)
        found.rules()
    except ValidationError as error:
        lines = [f"{path}: {'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
        raise FileError("\n".join(lines)) from error
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}: {error}") from error
    return found
