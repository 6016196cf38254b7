"""The policy of a cell: what its tool may do (`toolcelld.config.resolution.access`) on this host and in this project.

Nothing is lowered silently: a cell that the host cannot give, and a need that is not granted, is
a `Refusal` whose text has the line to add. Without confinement (`none`) the network cannot be withheld, so
a need of it is no reason to refuse.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from toolcell._paths import is_below
from toolcelld.catalog.discovery.sources import ToolFile
from toolcelld.config.enforcement import beyond, enforced_by, paths_of
from toolcelld.config.hosts import WHOLE, network_value, ports_of
from toolcelld.config.remedies import set_command
from toolcelld.config.resolution.access import Access, in_words
from toolcelld.config.resolution.settings import Settings
from toolcelld.errors import Refusal, RefusalReason
from toolcelld.files.paths import Place
from toolcelld.policy.decisions.consent import Consent
from toolcelld.policy.host import HostCapabilities
from toolcelld.policy.project import Project
from toolcelld.sandbox.policy import OPEN, Enclosure, SandboxPolicy

AUTO: Final[tuple[Enclosure, ...]] = ("strict", "baseline")
"""What `auto` tries, the best first; never silently none."""
_WEAKER: Final[Mapping[Enclosure, tuple[Enclosure, ...]]] = {
    "strict": ("baseline", "none"),
    "baseline": ("none",),
    "none": (),
}


CONFINED: Final = (
    "{tool} would reach the ports and files of the engine of this node, as it has the whole network, or no sandbox. "
    "Name the hosts that it needs in [tool.{tool}] network, and give it a sandbox."
)


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
    umask: int = 0o077  # that the daemon was started with
    # No tool gets the whole network or no sandbox, as another program's ports and files are there
    confined: bool = False


def enclosure_of(access: Access, host: HostCapabilities) -> Enclosure | None:
    """The enclosure that this comes to on a host; None where it cannot give it."""
    return next((one for one in _wanted(access) if not host.missing(one)), None)


def _wanted(access: Access) -> tuple[Enclosure, ...]:
    """What was configured, as enclosures, the best first."""
    return AUTO if access.enclosure == "auto" else (access.enclosure,)


def policy_of(
    tool: str,
    file: ToolFile,
    settings: Settings,
    consent: Consent,
    project: Project | None,
    host_paths: HostPaths,
) -> SandboxPolicy:
    """The policy for the calls of a tool. Raises `Refusal`."""
    access = settings.access
    enclosure = _given(tool, access, host_paths.host)
    if host_paths.confined and (enclosure == "none" or WHOLE in access.network):
        raise Refusal(RefusalReason.NOT_ALLOWED, CONFINED.format(tool=tool))
    lacking = settings.needs.lacking(access)
    lacking = Access(network=lacking.network if enclosure != "none" else (), secrets=lacking.secrets)
    if lacking:
        if barred := beyond(settings.enforce, lacking.network):
            raise Refusal(
                RefusalReason.NEEDS_GRANT, f"{tool} needs {' and '.join(in_words(lacking))}. {barred}"
            )
        raise _needs_grant(tool, lacking, access, consent)
    if enclosure == "baseline" and access.network and WHOLE not in access.network:
        whole = beyond(settings.enforce, (WHOLE,))
        whole = whole or f"To give it the whole network: {set_command(('tool', tool, 'network'), True)}"
        raise Refusal(
            RefusalReason.NO_SANDBOX,
            f"{tool} may reach some hosts only, and that can be held in the sandbox strict alone; here it is {enclosure}.\n"
            f"  {whole}\n"
            "  To see what strict lacks: toolcell doctor",
        )
    return _policy(enclosure, file, access, project, host_paths, settings, read_only=settings.read_only)


def policy_of_describing(file: ToolFile, settings: Settings, host_paths: HostPaths) -> SandboxPolicy:
    """The policy for loading a file to see its tools: it may read, and neither write nor use the network. Raises `Refusal`."""
    enclosure = _given(os.path.basename(file.path), settings.access, host_paths.host)
    access = replace(settings.access, network=(), writable=())
    return _policy(enclosure, file, access, None, host_paths, settings, read_only=True)


def _given(tool: str, access: Access, host: HostCapabilities) -> Enclosure:
    enclosure = enclosure_of(access, host)
    if enclosure is not None:
        return enclosure
    wanted = _wanted(access)[-1]
    lines = [
        f"{tool} is to run in the sandbox {wanted}, which this host cannot give: {host.missing(wanted)}",
        "To see what is missing, and how to get it: toolcell doctor",
    ]
    less = [one for one in _WEAKER[wanted] if not host.missing(one)]
    origin = access.origin("enclosure")
    if origin == "file":
        lines.append("The file asks for it itself.")
    elif origin == enforced_by("sandbox"):
        lines.append(f"No less is allowed: {origin}.")
    elif less:
        command = set_command(("tool", tool, "sandbox"), less[0])
        lines.append(f"To run it with less: {'   or '.join((command, *less[1:]))}")
    raise Refusal(RefusalReason.NO_SANDBOX, "\n  ".join(lines))


def _needs_grant(tool: str, lacking: Access, access: Access, consent: Consent) -> Refusal:
    what = " and ".join(in_words(lacking))
    if consent.why:
        return Refusal(RefusalReason.NEEDS_GRANT, f"{tool} needs {what}. {consent}")
    network = network_value((*access.network, *lacking.network))
    granting = [set_command(("tool", tool, "network"), network)] if lacking.network else []
    if lacking.secrets:
        granting.append(set_command(("tool", tool, "secrets"), [*access.secrets, *lacking.secrets]))
    return Refusal(
        RefusalReason.NEEDS_GRANT,
        f"{tool} needs {what}, which is not granted.\n  To grant it: {' && '.join(granting)}",
    )


def _policy(
    enclosure: Enclosure,
    file: ToolFile,
    access: Access,
    project: Project | None,
    host_paths: HostPaths,
    settings: Settings,
    *,
    read_only: bool,
) -> SandboxPolicy:
    if enclosure == "none":
        return replace(OPEN, umask=host_paths.umask)
    if project is not None and project.sources and file.directory not in project.sources:
        # The tools of the user that lie all over it have more rights than this one: their files stay as they are.
        read_only = True
    network, given = access.network, access.writable
    hosts = () if WHOLE in network else network
    entry = file.share is not None or is_below(host_paths.home, file.directory)
    place = () if entry else (Place(file.directory, 0, 0),)
    held = (*place, *(project.held if project is not None else ()))
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
        # The worker gets the content of its file. A file that lies in the home directory does not open that directory, and
        # the entry of a server lies nowhere.
        *(it.path for it in place),
        *file.programs,
        *access.readable,
        *((project.directory,) if read_only and project is not None else ()),
        *(it.path for it in repository),
        *(given if read_only else ()),
    )
    # What root allows is a place, and not what a link that a tool may make there leads to.
    held_paths = [
        Place(path, 0, 0)
        for key, paths in (("readable", access.readable), ("writable", given))
        if paths_of(settings.enforce, key) is not None
        for path in paths
    ]
    guarded = ""
    if project is not None and not read_only and not host_paths.host.guard:
        guarded = project.directory
    return SandboxPolicy(
        enclosure,
        readable=tuple(dict.fromkeys(readable)),
        writable=() if read_only else tuple(dict.fromkeys(work)),
        # A place that the user's own profile names as writable is one that tools are meant to write.
        protected=() if read_only else tuple(it.path for it in protected if it.path not in given),
        found=(*held_paths, *(held[: len(place) + 1] if read_only else (*held, *protected)), *repository),
        hidden=tuple(dict.fromkeys((host_paths.home, *host_paths.hidden))),
        network="proxy" if hosts else "open" if network else "none",
        hosts=hosts,
        ports=ports_of(hosts),
        listen=access.listen,
        execute=access.programs,
        guarded=guarded,
        umask=host_paths.umask,
        names=project.names if project is not None and guarded else (),
        granted=tuple(place for place in given if is_below(place, guarded)) if guarded else (),
    )
