"""A pod as Placement makes it, and what it reads of one. Computes.

What a pod offers to sessions stands in an annotation of it, so a pod that was made for an older configuration is known for what it
is. Its keys are in a Secret that belongs to it and ends with it.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from toolcell._printable import printable
from toolcelld_cluster.configuration import KubernetesSection, PodOffer, PodSection
from toolcelld_cluster.inventory import Needs
from toolcelld_cluster.kubernetes.objects import table, tables, text

PLACEMENT: Final = "toolcell.dev/placement"
"""The label with which authority a pod belongs to."""
TEMPLATE: Final = "toolcell.dev/template"
DIGEST: Final = "toolcell.dev/digest"
OFFER: Final = "toolcell.dev/offer"
CONTAINER: Final = "toolcelld"
KEYS: Final = "/var/lib/toolcell/keys"
STATE: Final = "/var/lib/toolcell/state"
KEYS_VOLUME: Final = "toolcell-keys"
STATE_VOLUME: Final = "toolcell-state"
STOP_SECONDS: Final = 10
"""Beyond the drain, until the container is killed."""
OFFER_BYTES_MAX: Final = 64 * 1024
REASON_LETTERS_MAX: Final = 300
GONE_PHASES: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """What is kept of a pod."""

    uid: str
    template: str
    digest: str
    offer: PodOffer
    node: str  # of Kubernetes; empty while it has none
    address: str  # empty while it has none
    phase: str
    deleting: bool
    waits_for: str  # why it does not run yet, in the words of Kubernetes


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesNode:
    """What is kept of a node of Kubernetes."""

    labels: Mapping[str, str]  # by our names
    cordoned: bool


def read_node(section: KubernetesSection, content: Mapping[str, Any]) -> KubernetesNode:
    """Return what is kept of a node: of its labels those that sessions may ask for."""
    labels = table(content, "metadata", "labels")
    found: dict[str, str] = {}
    for ours, theirs in section.labels.items():
        value = labels.get(theirs)
        if isinstance(value, str) and 0 < len(value) <= 63 and value.isprintable():
            found[ours] = value
    return KubernetesNode(labels=found, cordoned=table(content, "spec").get("unschedulable") is True)


def read_pod(content: Mapping[str, Any]) -> Pod | None:
    """Return what is kept of a pod; None for one that says of itself what Placement does not write."""
    about, spec, status = (table(content, key) for key in ("metadata", "spec", "status"))
    labels, annotations = table(about, "labels"), table(about, "annotations")
    offer = annotations.get(OFFER)
    if not isinstance(offer, str) or len(offer) > OFFER_BYTES_MAX:
        return None
    try:
        offered = PodOffer.model_validate_json(offer)
    except ValidationError:
        return None
    return Pod(
        uid=text(about.get("uid")),
        template=text(labels.get(TEMPLATE)),
        digest=text(labels.get(DIGEST)),
        offer=offered,
        node=text(spec.get("nodeName")),
        address=_address(status.get("podIP")),
        phase=text(status.get("phase")),
        deleting=about.get("deletionTimestamp") is not None,
        waits_for=_waits_for(status),
    )


def fits(offer: PodOffer, needs: Needs) -> bool:
    """Return whether a pod that offers this can take a session, when it has none."""
    return (
        needs.volume in offer.volumes
        and all(offer.labels.get(key) == value for key, value in needs.labels.items())
        and all(offer.resources.get(name, 0.0) >= amount for name, amount in needs.resources.items())
    )


def offer_for(section: KubernetesSection, template: PodSection, needs: Needs) -> PodOffer:
    """Return what a pod of a template offers that is made for a session: labels of Kubernetes' nodes that it asks for, too."""
    asked = {key: value for key, value in needs.labels.items() if key in section.labels}
    return PodOffer(
        volumes=template.volumes,
        labels={**asked, **template.labels},
        resources=template.resources,
        sessions=template.sessions,
    )


def digest(section: KubernetesSection, template: PodSection) -> str:
    """Return what tells pods of a template from those of the template as it was once."""
    told: dict[str, object] = {
        "pod": template.model_dump(),
        "image": section.image,
        "port": section.port,
        "user": section.user,
        "drain": section.drain,
    }
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def manifest(
    section: KubernetesSection, template: str, name: str, placement: str, offer: PodOffer
) -> dict[str, Any]:
    """Return a pod.

    What the template says of the pod and of its container counts, but for what makes the pod a node: it has no token of a
    service account and no variables of other services, it starts again when it ends, and it begins with our program.

    Args:
        section: The configuration.
        template: The name of its template.
        name: Of the pod, and of its Secret.
        placement: Which Placement it belongs to.
        offer: What it offers.
    """
    known = section.pods[template]
    selector = {section.labels[key]: value for key, value in offer.labels.items() if key in section.labels}
    selector = {key: value for key, value in selector.items() if key not in table(known.spec, "nodeSelector")}
    own: dict[str, Any] = {
        "nodeSelector": selector,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": section.user,
            "runAsGroup": section.user,
            "fsGroup": section.user,  # it may read the keys, and write its state
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    forced: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": math.ceil(section.drain) + STOP_SECONDS,
        "containers": [_container(section, known, name)],
        "volumes": [
            *known.spec.get("volumes", []),
            {"name": KEYS_VOLUME, "secret": {"secretName": name, "defaultMode": 0o440}},
            {"name": STATE_VOLUME, "emptyDir": {}},
        ],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {
                "app.kubernetes.io/name": "toolcell",
                PLACEMENT: placement,
                TEMPLATE: template,
                DIGEST: digest(section, known),
            },
            "annotations": {OFFER: offer.model_dump_json()},
        },
        "spec": {**_merged(own, known.spec), **forced},
    }


def secret(name: str, uid: str, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the Secret of a pod, which ends with the pod."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "ownerReferences": [owner]},
        "data": {file: base64.b64encode(content).decode() for file, content in files.items()},
    }


def _container(section: KubernetesSection, template: PodSection, name: str) -> dict[str, Any]:
    own: dict[str, Any] = {
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    mounted = {each.get("name") for each in template.spec.get("volumes", [])}
    forced: dict[str, Any] = {
        "name": CONTAINER,
        "image": template.image or section.image,
        "command": ["python3", "-P", "-m", "toolcelld_cluster.kubernetes.node"],
        "args": [
            *("--keys", KEYS, "--state", STATE, "--node", name, "--host", "$(POD_IP)"),
            *("--port", str(section.port), "--drain", f"{section.drain:g}"),
        ],
        "env": [
            *template.container.get("env", []),
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "HOME", "value": f"{STATE}/home"},
        ],
        "ports": [{"name": "toolcell", "containerPort": section.port}],
        "readinessProbe": {"tcpSocket": {"port": section.port}},
        "volumeMounts": [
            *(
                {"name": volume, "mountPath": path}
                for volume, path in template.volumes.items()
                if volume in mounted
            ),
            *template.container.get("volumeMounts", []),
            {"name": KEYS_VOLUME, "mountPath": KEYS, "readOnly": True},
            {"name": STATE_VOLUME, "mountPath": STATE},
        ],
    }
    return {**_merged(own, template.container), **forced}


def _merged(own: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """Return two tables as one; of a key of both the second one counts, unless both are tables."""
    found = {**own, **said}
    for key in own.keys() & said.keys():
        if isinstance(own[key], dict) and isinstance(said[key], dict):
            found[key] = _merged(own[key], said[key])
    return found


def _waits_for(status: Mapping[str, Any]) -> str:
    """Return why a pod does not run: what the scheduler or the kubelet says of it."""
    for condition in tables(status.get("conditions")):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _said(condition.get("message") or condition.get("reason"))
    for container in tables(status.get("containerStatuses")):
        waiting = table(container, "state", "waiting")
        if waiting:
            return _said(f"{text(waiting.get('reason'))}: {text(waiting.get('message'))}")
    return ""


def _said(found: object) -> str:
    return printable(text(found), lines=False)[:REASON_LETTERS_MAX]


def _address(found: object) -> str:
    """Return the address of a pod, or nothing for what is none of another machine."""
    try:
        known = ipaddress.ip_address(text(found))
    except ValueError:
        return ""
    return "" if known.is_multicast or known.is_unspecified else str(known)
