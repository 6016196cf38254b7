"""What the cell of a tool may do: its policy and its secrets, decided by pure functions.

    [tool.NAME], else [source.NAME], else [defaults] names the sandbox; the file can only ask for a stronger one
    what a file needs is held under what its source, or the trust in its project, allows
    [tool.NAME] and the profile grant by name, whether the file asks or not
    the tools of an untrusted project get the smallest cell, whatever else was configured

Nothing is lowered silently: a cell that the host cannot give, and a need that is not granted, is
a `Refusal` whose text has the line to add. Without confinement (`none`) the network cannot be withheld, so
a need of it is no reason to refuse.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from toolcelld.catalog.discovery.sources import ToolFile, project_directory
from toolcelld.config.hosts import ports_of
from toolcelld.config.resolution.grants import NOTHING, Grant
from toolcelld.config.resolution.settings import Settings
from toolcelld.config.schema import DefaultsSection, ProfileSection
from toolcelld.errors import Refusal, RefusalReason
from toolcelld.files.paths import Place, is_below
from toolcelld.policy.host import HostCapabilities
from toolcelld.policy.project import Project
from toolcelld.sandbox.policy import OPEN, Enclosure, SandboxPolicy

__all__ = [
    "AUTO",
    "CONFIG_FILE",
    "PLAIN_ENV",
    "HostPaths",
    "enclosure_of",
    "policy_of",
    "policy_of_describing",
    "table_of",
]

AUTO: Final[tuple[Enclosure, ...]] = ("strict", "baseline")
"""What `auto` tries, the best first; never silently none."""
_ALL: Final[tuple[Enclosure, ...]] = ("none", "baseline", "strict")  # the weakest first
PLAIN_ENV: Final = frozenset(DefaultsSection.default().env)
"""What every tool may see of the environment: where programs are, and how to speak to people."""
CONFIG_FILE: Final = "~/.config/toolcell/config.toml"


@dataclass(frozen=True, slots=True)
class HostPaths:
    """What of this machine and this daemon a permit depends on."""

    host: HostCapabilities
    home: str
    hidden: tuple[
        str, ...
    ] = ()  # where the daemon keeps its state, its socket, its tokens and its configuration
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)  # the daemon's own
    packages: str = ""  # where packages of scripts are kept


def enclosure_of(settings: Settings, host: HostCapabilities) -> Enclosure | None:
    """The enclosure that these settings come to on a host; None where it cannot give it."""
    for it in _wanted(settings):
        tried = _stronger(it, settings.sandbox_least)
        if not host.missing(tried):
            return tried
    return None


def _wanted(settings: Settings) -> tuple[Enclosure, ...]:
    """What was configured, as enclosures, the best first."""
    asked = settings.profile.base if settings.profile is not None else settings.sandbox
    return AUTO if asked == "auto" else tuple(it for it in _ALL if it == asked)


def _stronger(one: Enclosure, other: Enclosure) -> Enclosure:
    return one if _ALL.index(one) >= _ALL.index(other) else other


def policy_of(
    tool: str,
    file: ToolFile,
    settings: Settings,
    may: Grant | None,
    project: Project,
    host_paths: HostPaths,
    *,
    changed: bool = False,
) -> tuple[SandboxPolicy, tuple[str, ...]]:
    """The policy for the calls of a tool, and the names of the secrets that it gets.

    `may` is the most that its source, or the trust in its project, allows; None is no trust at all, and then `file`
    names neither an interpreter nor programs. `changed` says that the tool asks for more than was shown. Raises `Refusal`.
    """
    enclosure = _given(tool, settings, host_paths.host)
    if may is not None and settings.network_said:
        may = replace(may, network=settings.granted.network)
    if may is not None:
        may = may.within(Grant(settings.network_most, may.secrets))
    granted = NOTHING if may is None else settings.granted.beside(settings.needs.within(may))
    needs = settings.needs if enclosure != "none" else replace(settings.needs, network=False)
    if lacking := needs.lacking(granted):
        raise _needs_grant(tool, file, lacking, granted, trusted=may is not None, changed=changed)
    if enclosure == "baseline" and isinstance(granted.network, tuple):
        raise Refusal(
            RefusalReason.NO_SANDBOX,
            f"{tool} may reach some hosts only, and that can be held in the sandbox strict alone; here it is {enclosure}.\n"
            f"  To give it the whole network: [{table_of(tool)}] network = true in {CONFIG_FILE}\n"
            "  To see what strict lacks: toolcell doctor",
        )
    profile = settings.profile if may is not None else None
    return _policy(enclosure, file, settings, profile, granted.network, project, host_paths), granted.secrets


def policy_of_describing(
    file: ToolFile, settings: Settings, may: Grant | None, host_paths: HostPaths
) -> tuple[SandboxPolicy, tuple[str, ...]]:
    """The policy for loading a file to see its tools, and the names of the secrets that it gets.

    It may read, and neither write nor use the network. Granted secrets are there, because many files look for
    them while they are imported. `may` is as in `policy_of`. Raises `Refusal`.
    """
    enclosure = _given(os.path.basename(file.path), settings, host_paths.host)
    granted = NOTHING if may is None else settings.granted.beside(may)
    still = replace(settings, read_only=True)
    profile = settings.profile if may is not None else None
    if profile is not None:
        profile = profile.model_copy(update={"writable": ()})
    return _policy(enclosure, file, still, profile, False, None, host_paths), granted.secrets


def _given(tool: str, settings: Settings, host: HostCapabilities) -> Enclosure:
    enclosure = enclosure_of(settings, host)
    if enclosure is not None:
        return enclosure
    wanted = _stronger(_wanted(settings)[-1], settings.sandbox_least)
    remedy = (
        "The file asks for it itself."
        if wanted == settings.sandbox_least
        else f'To run it with less: [{table_of(tool)}] sandbox = "baseline" (or "none") in {CONFIG_FILE}'
    )
    raise Refusal(
        RefusalReason.NO_SANDBOX,
        f"{tool} is to run in the sandbox {wanted}, which this host cannot give: {host.missing(wanted)}\n"
        f"  To see what is missing, and how to get it: toolcell doctor\n  {remedy}",
    )


def _needs_grant(
    tool: str, file: ToolFile, lacking: Grant, granted: Grant, *, trusted: bool, changed: bool
) -> Refusal:
    what = " and ".join(
        part
        for part in (
            _network_words(lacking.network),
            f"the secret{'s' * (len(lacking.secrets) > 1)} {', '.join(lacking.secrets)}"
            if lacking.secrets
            else "",
        )
        if part
    )
    if not trusted:
        return Refusal(
            RefusalReason.NEEDS_GRANT,
            f"{tool} needs {what}, and its project is not trusted.\n"
            f"  To see what its tools ask for, and to grant it: toolcell trust {project_directory(file)}",
        )
    if changed:
        return Refusal(
            RefusalReason.NEEDS_GRANT,
            f"{tool} needs {what}, which it did not ask for when its project was trusted.\n"
            f"  To see what is new, and to grant it: toolcell trust {project_directory(file)}",
        )
    lines = "\n".join(f"    {line}" for line in granted.beside(lacking).lines())
    return Refusal(
        RefusalReason.NEEDS_GRANT,
        f"{tool} needs {what}, which is not granted.\n  To grant it, in {CONFIG_FILE}:\n    [{table_of(tool)}]\n{lines}",
    )


def _network_words(network: bool | tuple[str, ...]) -> str:
    if isinstance(network, tuple):
        return f"the network, to {', '.join(network)}"
    return "the network" if network else ""


def table_of(tool: str) -> str:
    """Return the name of a tool's table in the configuration, quoted if it has to be."""
    return f"tool.{tool}" if tool.replace("-", "").replace("_", "").isalnum() else f"tool.{json.dumps(tool)}"


def _policy(
    enclosure: Enclosure,
    file: ToolFile,
    settings: Settings,
    profile: ProfileSection | None,
    network: bool | tuple[str, ...],
    project: Project | None,
    host_paths: HostPaths,
) -> SandboxPolicy:
    if enclosure == "none":
        return OPEN
    if project is not None and project.sources and file.directory not in project.sources:
        # The tools of the user that lie all over it have more rights than this one: their files stay as they are.
        settings = replace(settings, read_only=True)
    hosts = network if isinstance(network, tuple) else ()
    place = () if is_below(host_paths.home, file.directory) else (Place(file.directory, 0, 0),)
    held = (*place, *(project.held if project is not None else ()))
    given = profile.writable if profile is not None else ()
    work = (
        *((project.directory,) if project is not None else ()),
        *(it.path for it in (project.held[1:] if project is not None else ())),
        *given,
    )
    protected = project.protected if project is not None else ()
    # The user's own profile may let tools write there.
    repository = [
        it
        for it in (project.repository if project is not None else ())
        if not any(is_below(it.path, path) for path in given)
    ]
    readable = (
        # The worker gets the content of its file. A file that lies in the home directory does not open that directory.
        *(it.path for it in place),
        *file.programs,
        *(profile.readable if profile is not None else ()),
        *((project.directory,) if settings.read_only and project is not None else ()),
        *(it.path for it in repository),
        *(given if settings.read_only else ()),
    )
    guarded = ""
    if project is not None and not settings.read_only and not host_paths.host.guard:
        guarded = project.directory
    return SandboxPolicy(
        enclosure,
        readable=tuple(dict.fromkeys(readable)),
        writable=() if settings.read_only else tuple(dict.fromkeys(work)),
        # A place that the user's own profile names as writable is one that tools are meant to write.
        protected=() if settings.read_only else tuple(it.path for it in protected if it.path not in given),
        found=(*(held[: len(place) + 1] if settings.read_only else (*held, *protected)), *repository),
        hidden=tuple(dict.fromkeys((host_paths.home, *host_paths.hidden))),
        network="proxy" if hosts else "open" if network else "none",
        hosts=hosts,
        ports=ports_of(hosts),
        listen=profile is not None and profile.listen,
        execute=settings.programs,
        guarded=guarded,
        names=project.names if project is not None and guarded else (),
        granted=tuple(place for place in given if is_below(place, guarded)) if guarded else (),
    )
