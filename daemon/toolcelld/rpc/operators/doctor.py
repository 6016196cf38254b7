"""What this host can give a cell, layer by layer, for people who want to know why something is missing.

What can be had was found out by building cells (see `host`); here it is only told, with the settings of
the kernel that most often stand in the way, and what would mend them. Nothing is tried here but the engine of TypeScript, and nothing changed.
"""

from __future__ import annotations

import asyncio
import os
import platform
import resource
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from toolcell._units import format_bytes
from toolcelld import linux
from toolcelld.catalog.discovery.sources import ToolFile
from toolcelld.cell.cgroup import CgroupTree
from toolcelld.config.resolution.settings import resolve
from toolcelld.environments.engine import INSTALLING, engine_here, passed_over
from toolcelld.environments.kept import KeptDirectory
from toolcelld.environments.programs import programs_of
from toolcelld.errors import Refusal
from toolcelld.files.looks import look
from toolcelld.files.regular import read_regular
from toolcelld.inspector import process as inspector
from toolcelld.policy.host import HostCapabilities
from toolcelld.policy.permit import cell_of_description
from toolcelld.policy.profiles import enclosure_of
from toolcelld.policy.ruleset import Ruleset
from toolcelld.pool.describer import Describer
from toolcelld.records.ledger import Records
from toolcelld.sandbox import namespaces
from toolcelld.sandbox.policy import Enclosure
from toolcelld.store import Store
from toolcelld.worker import engine as worker

State = Literal["in use", "available", "missing", "unknown"]

ENCLOSURES: Final[tuple[Enclosure, ...]] = ("strict", "baseline", "none")
VERSION_BYTES_MAX: Final = 10_000
"""Of the file by which an engine says its version."""
NEARLY_FULL: Final = 0.9

_SETTINGS: Final = (
    (
        "kernel.apparmor_restrict_unprivileged_userns",
        "1",
        "AppArmor keeps unprivileged programs from user namespaces",
    ),
    ("kernel.unprivileged_userns_clone", "0", "the kernel keeps unprivileged programs from user namespaces"),
    ("user.max_user_namespaces", "0", "no user namespaces are allowed"),
)
"""Each with the value that stands in the way of `strict`, and what that value means."""
_MENDED: Final = {"1": "0", "0": "1"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    name: str
    state: State
    detail: str = ""
    remedy: str = ""
    kind: Literal["profile", "layer", "host"] = "host"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All of it."""

    sandbox: str  # the configured default
    enclosure: Enclosure | None  # what it comes to here
    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        """Whether the configured default can be given."""
        return self.enclosure is not None


def diagnose(
    ruleset: Ruleset,
    groups: CgroupTree,
    looked_at: Sequence[Finding],
    *,
    spill_bytes: int,
    kept: Sequence[KeptDirectory],
    store: Store,
) -> Diagnosis:
    """Tell what there is. Reads some small files of /proc and /sys.

    Args:
        ruleset: The rules in force.
        groups: The control groups of the daemon.
        looked_at: What `look_at_engine`, `look_at_programs` and `look_at_inspector` have found.
        spill_bytes: The size of the outputs on disk.
        kept: The environments and packages on disk.
        store: The database.
    """
    # A tool that no rule speaks of: its name fits no pattern but those for all.
    access = resolve(ruleset.config, "", {}, "").access
    enclosure = enclosure_of(access, ruleset.host_paths.host)
    findings = [
        *_profiles(ruleset, enclosure),
        *_layers(ruleset, enclosure),
        *_kernel(),
        _guard(ruleset.host_paths.host.guard),
        *_process_numbers(ruleset.host_paths.host),
        _groups(groups),
        _descriptors(),
        *looked_at,
        _spill(spill_bytes, ruleset.config.spill.quota_bytes),
        _kept(kept),
        *_database(store),
        *_disabled(ruleset),
    ]
    return Diagnosis(access.sandbox, enclosure, tuple(findings))


def _profiles(ruleset: Ruleset, used: Enclosure | None) -> Iterator[Finding]:
    host = ruleset.host_paths.host
    for enclosure in ENCLOSURES:
        missing = host.missing(enclosure)
        state: State = "missing" if missing else "in use" if enclosure == used else "available"
        yield Finding(enclosure, state, missing, _remedy(enclosure) if missing else "", kind="profile")


def _remedy(enclosure: Enclosure) -> str:
    if linux.landlock_abi() < 1:
        return "boot a kernel of 5.13 or newer with landlock among its security modules (lsm=landlock,…)"
    if enclosure == "strict":
        ways = [
            f"{meaning}: sysctl -w {name}={_MENDED.get(bad, '')}"
            for name, bad, meaning in _SETTINGS
            if _sysctl(name) == bad
        ]
        return (
            "; ".join(ways)
            or "allow unprivileged user namespaces; in a container, with its seccomp profile, too"
        )
    return ""


def _layers(ruleset: Ruleset, used: Enclosure | None) -> Iterator[Finding]:
    """Those that the cells of each kind reported, the strongest kind's first."""
    reported = ruleset.host_paths.host.layers
    in_use: Sequence[str] = reported.get(used or "", ())
    for layer in dict.fromkeys(layer for kind in ENCLOSURES for layer in reported.get(kind, ())):
        kinds = [kind for kind in ENCLOSURES if layer in reported.get(kind, ())]
        yield Finding(
            layer, "in use" if layer in in_use else "available", f"of {', '.join(kinds)}", kind="layer"
        )


def look_at_programs(ruleset: Ruleset) -> tuple[Finding, ...]:
    """Tell which files the programs are that the daemon starts or gives to cells, as it has fixed them. Blocks."""
    paths = ruleset.host_paths
    programs = programs_of(paths.environment.get("PATH", os.defpath), paths.home)
    found: list[Finding] = []
    for program in programs.fixed:
        name = f"program {program.name}"
        if fault := programs.fault_now(program):
            remedy = f"put a {program.name} on PATH where only you and root can write, and restart the daemon"
            found.append(Finding(name, "missing", f"{program.place}: {fault}", remedy))
        else:
            found.append(Finding(name, "in use", str(program)))
    return tuple(found)


def look_at_inspector() -> Finding:
    """Tell how the process is confined that reads the files of projects. Blocks."""
    confined, missing = inspector.confinement()
    if not confined:
        return Finding("inspector", "missing", missing, "allow seccomp to the daemon, and processes")
    return Finding("inspector", "in use", "system-call filter: it computes, reads and writes")


def _kernel() -> Iterator[Finding]:
    yield Finding("kernel", "in use", f"{platform.release()} {platform.machine()}")
    abi = linux.landlock_abi()
    if abi >= linux.LANDLOCK_ABI_SIGNAL:
        yield Finding("Landlock", "available", f"ABI {abi}")
    elif abi >= 1:
        lost = f"ABI {abi}: signals are not confined and the end of a cell is not proven by it, which needs Linux 6.12"
        yield Finding("Landlock", "available", lost, "boot a kernel of 6.12 or newer")
    else:
        modules = _read("/sys/kernel/security/lsm") or "unknown"
        yield Finding("Landlock", "missing", f"security modules: {modules}", _remedy("baseline"))
    for name, bad, meaning in _SETTINGS:
        value = _sysctl(name)
        if value == bad and os.geteuid():
            yield Finding(name, "missing", meaning, f"sysctl -w {name}={_MENDED[bad]}")


async def look_at_engine(ruleset: Ruleset, describer: Describer) -> Finding:
    """Tell which engine runs TypeScript, and its version, which it says itself in a cell."""
    name = "engine for TypeScript"
    engine = await asyncio.to_thread(engine_here)
    path, home = ruleset.host_paths.environment.get("PATH", ""), ruleset.host_paths.home
    others = "".join(f"; {one}" for one in await asyncio.to_thread(passed_over, path, home))
    if engine is None:
        return Finding(name, "missing", f"there is neither bun nor node{others}", INSTALLING)
    where = f"{engine.name}, {engine.program}{others}"
    if not await asyncio.to_thread(os.path.exists, os.path.join(worker.SOURCES, "vendor", "worker.mjs")):
        lacking = "Toolcell was built without its libraries for TypeScript"
        return Finding(name, "missing", f"{where}: {lacking}", "run make engines and install it again")
    path = os.path.join(worker.SOURCES, "version.mjs")
    content = await asyncio.to_thread(read_regular, path, VERSION_BYTES_MAX)
    place = os.path.dirname(path)
    file = ToolFile(path, "user", "global", "engine", content, f"engine {engine.key}", place, engine=engine)
    try:
        described = await describer.describe(await look(file.directory, cell_of_description, ruleset, file))
    except Refusal as refusal:  # no cell can be had, which the profiles say too
        return Finding(name, "unknown", f"{where}: {refusal.message.splitlines()[0]}")
    if described.broken is not None or not described.tools:
        reason = (
            described.broken.message.splitlines()[0] if described.broken is not None else "it says nothing"
        )
        return Finding(name, "missing", f"{where}: {reason}", INSTALLING)
    return Finding(
        name, "available", f"{engine.name} {described.tools[0].description}, {engine.program}{others}"
    )


def _guard(missing: str) -> Finding:
    name = "protected names"
    if not missing:
        return Finding(name, "in use", "refused when a tool makes one, in baseline and strict")
    return Finding(
        name,
        "missing",
        f"moved aside after a tool has made one, as they cannot be refused: {missing.splitlines()[0]}",
        "boot a kernel of 5.19 or newer; in a container, without a seccomp listener of its own",
    )


def _process_numbers(host: HostCapabilities) -> Iterator[Finding]:
    """Whether a fork bomb in a strict cell finds no more process numbers than the cell may have processes."""
    name, layers = "process numbers", host.layers.get("strict", ())
    if host.strict:
        return
    if namespaces.BOUNDED in layers:
        yield Finding(name, "in use", "bounded for each strict cell")
    elif namespaces.BOUNDED_ROUGHLY in layers:
        detail = f"a strict cell has {namespaces.RESERVED_PIDS} more than it needs: ns_last_pid cannot be set there"
        yield Finding(name, "missing", detail, "boot a kernel with CONFIG_CHECKPOINT_RESTORE")
    else:
        detail = "not bounded, as pid_max cannot be set in a strict cell"
        held = (
            "the processes of root are held by polling alone"
            if os.geteuid() == 0
            else "the limit of the user holds"
        )
        remedy = "boot a kernel of 6.14 or newer; in a container, with /proc/sys writable"
        yield Finding(name, "missing", f"{detail}: {held}", remedy)


def _groups(groups: CgroupTree) -> Finding:
    if groups.reason:
        return Finding(
            "control groups",
            "missing",
            groups.reason,
            "run the daemon as its systemd user unit, which has Delegate=yes; limits are polled until then",
        )
    return Finding("control groups", "in use", groups.available)


def _descriptors() -> Finding:
    """Whether the daemon can open what further sessions and cells need."""
    used, most = len(os.listdir("/proc/self/fd")), resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    detail = f"{used} of {most}"
    if used < NEARLY_FULL * most:
        return Finding("descriptors", "in use", detail)
    return Finding(
        "descriptors", "missing", detail, "raise LimitNOFILE of the unit, or close unused sessions"
    )


def _spill(used_bytes: int, quota_bytes: int) -> Finding:
    detail = f"{format_bytes(used_bytes)} of {format_bytes(quota_bytes)}"
    nearly = used_bytes >= NEARLY_FULL * quota_bytes
    return Finding("spill quota", "in use", detail, "raise [spill] quota" if nearly else "")


def _kept(kept: Sequence[KeptDirectory]) -> Finding:
    unneeded = [usage for usage in kept if usage.unneeded]
    detail = f"{len(kept)} of {format_bytes(sum(usage.size_bytes for usage in kept))}"
    if not unneeded:
        return Finding("environments", "in use", detail)
    size = format_bytes(sum(usage.size_bytes for usage in unneeded))
    detail += f", {len(unneeded)} of them, of {size}, are asked for by no tool file"
    return Finding("environments", "in use", detail, "toolcell prepare --remove-unused")


def look_at_records(records: Records) -> tuple[Finding, ...]:
    """Tell whether what happens is recorded. Blocks."""
    if not records.section.enabled:
        return (Finding("records", "missing", "switched off by [records] enabled = false"),)
    return tuple(Finding("records", "missing", notice.text, notice.remedy) for notice in records.notices) or (
        Finding("records", "in use", f"{records.path} ({format_bytes(records.size_bytes)})"),
    )


def _database(store: Store) -> Iterator[Finding]:
    for notice in store.notices:
        yield Finding("database", "missing", notice.text, notice.remedy)
    if not store.notices:
        yield Finding("database", "in use", store.path)


def _disabled(ruleset: Ruleset) -> Iterator[Finding]:
    for name, tool in sorted(ruleset.disabled.items()):
        first, remedy = str(tool).split("\n")
        yield Finding(f"tool {name}", "missing", first, remedy.strip())


def _sysctl(name: str) -> str:
    return _read(f"/proc/sys/{name.replace('.', '/')}")


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(1000).strip()
    except OSError:
        return ""
