"""Why a tool did not reach a host, in one sentence: a refusal with the command that ends it, or the host's own failure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from toolcelld.catalog.discovery.project_servers import REMEDY
from toolcelld.catalog.discovery.project_servers import TABLE as SHIPPED
from toolcelld.config.enforcement import beyond
from toolcelld.config.hosts import as_address, entry_for, is_granted, network_entries
from toolcelld.config.remedies import set_command
from toolcelld.config.resolution.settings import Settings
from toolcelld.network.attempts import Attempt
from toolcelld.network.refusals import RefusedHost
from toolcelld.sandbox.policy import SandboxPolicy

_PLACE: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9._-]{1,253}))(?::([0-9]{1,5}))?")


def explained(
    table: tuple[str, str],
    settings: Settings,
    policy: SandboxPolicy,
    unreached: str | None,
    refused: Sequence[RefusedHost],
    attempts: Sequence[Attempt],
) -> str:
    """Return why a failed tool did not reach a host; empty where its network is not why.

    Args:
        table: That of the configuration which grants it something: ("tool", its name).
        policy: Of its cell.
        unreached: The place that its exception is about, as its worker says; None if it is about none.
        refused: What it asked for and may not reach.
        attempts: What it asked for and may reach.
    """
    if policy.network == "open":
        return ""
    host, port = _read(unreached or "")
    place = f"{_written(host)}:{port}" if port else _written(host)
    if policy.network == "none":
        if unreached is None:
            return ""
        so = f", so it cannot reach {place}" if place else ""
        return f"This tool has no network{so}.\n{_grant(table, settings, policy, [entry_for(host, port or 443)] if host else [])}"
    if refused:
        # A name is refused before its port is known.
        wanted = [entry_for(host, port) if each.entry == host and port else each.entry for each in refused]
        return _not_included(table, settings, policy, wanted)
    if down := {attempt.place: attempt.why for attempt in attempts if attempt.why}:
        return "\n".join(f"{at} is granted, but {why}." for at, why in down.items())
    if unreached is None:
        return ""
    if port and not is_granted(host, port, policy.hosts):
        return _not_included(table, settings, policy, [entry_for(host, port)])
    if any(attempt.place == place for attempt in attempts) or (attempts and not place):
        return f"{attempts[-1].place} is granted and was connected to; what failed came after that."
    return (
        f"This tool reaches {', '.join(policy.hosts)} by TCP, and no other host, port or protocol; without a port an entry "
        "means 80 and 443."
    )


def _not_included(
    table: tuple[str, str], settings: Settings, policy: SandboxPolicy, wanted: Sequence[str]
) -> str:
    entries = list(dict.fromkeys(wanted))
    grant = _grant(table, settings, policy, entries)
    return f"The network of this tool does not include {', '.join(entries)}.\n{grant}"


def _grant(table: tuple[str, str], settings: Settings, policy: SandboxPolicy, wanted: Sequence[str]) -> str:
    """The command that lets it reach these hosts; without strict that is the whole network."""
    granted = list(dict.fromkeys((*policy.hosts, *(wanted or ["HOST"]))))
    value = granted if policy.enclosure == "strict" else True
    whole = "" if policy.enclosure == "strict" else ", which outside of the sandbox strict is all of it"
    if table == SHIPPED:
        return f"  {REMEDY}"
    if barred := beyond(settings.enforce, network_entries(value if value is True else tuple(wanted))):
        return f"  {barred}"
    command = set_command((*table, "network"), value)
    trust = f"\n  then, as only trusted tools have more: {settings.grant}" if settings.grant else ""
    return f"  To grant it{whole}: {command}{trust}"


def _read(place: str) -> tuple[str, int]:
    """The host and the port, or 0, of what a worker says, which may be anything."""
    found = _PLACE.fullmatch(place)
    if found is None:
        return "", 0
    host, port = found[1] or found[2], int(found[3] or 0)
    if found[1] is not None and as_address(host) is None:
        return "", 0
    return host.lower().removesuffix("."), port if port < 2**16 else 0


def _written(host: str) -> str:
    return f"[{host}]" if ":" in host else host
