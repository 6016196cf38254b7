"""Installs the packages that the tools of a directory ask for, before their first call: the RPC `Prepare`.

For tools in TypeScript and JavaScript, and for MCP servers of npm, this is the only time, see
`toolcelld.calls.installation`; environments of Python
would be built at the first call, see `toolcelld.environments.builder`. Places with the same packages share one
installation.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from toolcell._file_kinds import needs_engine
from toolcell._units import format_bytes
from toolcell_proto.v1 import operator_pb2 as pb
from toolcelld.catalog.discovery.scan import scan
from toolcelld.catalog.discovery.sources import ToolFile, project_directory, sources_of
from toolcelld.catalog.registry import DirectoryError, resolved
from toolcelld.config.schema import PROJECT
from toolcelld.daemon import Daemon
from toolcelld.environments.builder import BuildError
from toolcelld.environments.engine import engine_here
from toolcelld.environments.kept import RECENT_SECONDS
from toolcelld.environments.packages import (
    INSTALLED,
    PackagesError,
    manifest_of_packages,
    read_manifest,
)
from toolcelld.environments.requirements import has_block
from toolcelld.errors import BadRequest, Refusal
from toolcelld.files.looks import look
from toolcelld.policy.decisions.consent import grant_command
from toolcelld.policy.interpreters import manifest_of, opened_of
from toolcelld.policy.permit import cell_of_description
from toolcelld.rpc.agent_service import LOOK_SECONDS_MAX


@dataclass(frozen=True, slots=True)
class _Step:
    """What one place needs."""

    path: str
    state: str  # "installing" where there is something to do; else how it stands
    message: str
    work: Callable[[], Awaitable[object]] | None = None


async def prepare(daemon: Daemon, directory: str) -> AsyncIterator[pb.PrepareResponse]:
    """Install what the tools of a directory ask for, and tell how it stands with each place.

    Args:
        directory: An absolute path.

    Raises:
        Refusal: The directory cannot be read.
    """
    try:
        steps = await look(directory, _steps, daemon, directory)
    except DirectoryError as error:
        raise BadRequest(str(error), field="directory") from error
    worked = False
    for step in steps:
        yield pb.PrepareResponse(path=step.path, state=step.state, message=step.message)
        if step.work is None:
            continue
        try:
            await step.work()
        except (BuildError, PackagesError) as error:
            yield pb.PrepareResponse(path=step.path, state="failed", message=str(error))
        else:
            worked = True
            yield pb.PrepareResponse(path=step.path, state="installed", message=step.message)
    if worked:
        await daemon.look_again(wait_seconds=LOOK_SECONDS_MAX)


async def remove_unused(daemon: Daemon) -> AsyncIterator[pb.PrepareResponse]:
    """Remove the environments and packages that no tool file asks for any more and no worker has used lately."""
    for usage in await daemon.kept.remove(RECENT_SECONDS):
        yield pb.PrepareResponse(path=usage.path, state="removed", message=format_bytes(usage.size_bytes))


def _steps(daemon: Daemon, directory: str) -> list[_Step]:
    """Return what the tool files of a directory need, each place once. Blocks on the file system. Raises `DirectoryError`."""
    place = resolved(directory)
    found = scan(sources_of(daemon.config, place), place)
    steps: dict[str, _Step] = {}
    if engine_here() is None:
        for problem in found.problems:
            if needs_engine(problem.path) and problem.reason == "unused":
                steps[problem.path] = _Step(problem.path, "failed", problem.message)
    for file in found.files:
        path = _place_of(daemon, file)
        if not path or path in steps:
            continue
        step = _STEPS[_kind_of(file)](daemon, file, path)
        if step is not None:
            allowed = step.state == "present" or _is_trusted(daemon, file)
            steps[path] = step if allowed else _refused(daemon, file, path)
    return list(steps.values())


def _place_of(daemon: Daemon, file: ToolFile) -> str:
    """Return what a file's packages are listed in: a directory with `package.json`, or itself; empty for nothing."""
    if file.engine is None:
        return file.path if file.requires or file.scripts or has_block(file.content) else ""
    root = daemon.services.ruleset.root_of(file) if file.source == PROJECT else ""
    return manifest_of(file, daemon.services.ruleset.host_paths.home, root)


def _is_trusted(daemon: Daemon, file: ToolFile) -> bool:
    ruleset = daemon.services.ruleset
    if not ruleset.trusts_file(file):
        return False
    if file.source != PROJECT or ruleset.config.trust == "all":
        return True
    try:
        return ruleset.find_project(project_directory(file)).trustworthy
    except OSError:
        return False


def _refused(daemon: Daemon, file: ToolFile, path: str) -> _Step:
    consent = daemon.services.ruleset.consent_to_file(file)
    why = str(consent) if consent.why else f"See why: {grant_command(file)}"
    return _Step(path, "refused", f"nothing is installed for what is not trusted. {why}")


def _kind_of(file: ToolFile) -> str:
    return "script" if file.engine is not None else "server" if file.scripts else "python"


def _of_server(daemon: Daemon, file: ToolFile, path: str) -> _Step:
    manifest = manifest_of_packages(path, file.scripts)
    message = f"{', '.join(file.scripts)}, by npm"[:500]
    try:
        lock, manager = daemon.installations.choose(manifest)
    except PackagesError as error:
        return _Step(path, "failed", str(error))
    if daemon.installations.is_installed(manifest, lock):
        return _Step(path, "present", message)
    return _Step(path, "installing", message, lambda: daemon.install(manifest, lock, manager))


def _of_script(daemon: Daemon, file: ToolFile, directory: str) -> _Step | None:
    if os.path.lexists(os.path.join(directory, INSTALLED)):
        return _Step(directory, "present", f"it has {INSTALLED}, which is used as it is")
    installations = daemon.installations
    try:
        manifest = read_manifest(directory, opened_of(file))
        if manifest is None:
            return None
        lock, manager = installations.choose(manifest)
    except PackagesError as error:
        return _Step(directory, "failed", str(error))
    message = f"the packages of {lock.name}, by {manager.name}"
    if installations.is_installed(manifest, lock):
        return _Step(directory, "present", message)
    return _Step(directory, "installing", message, lambda: daemon.install(manifest, lock, manager))


def _of_python(daemon: Daemon, file: ToolFile, path: str) -> _Step | None:
    try:
        spec = cell_of_description(daemon.services.ruleset, file)
    except Refusal as refusal:
        return _Step(path, "failed", refusal.message)
    if not spec.requirements:
        return None if daemon.services.ruleset.trusts_file(file) else _refused(daemon, file, path)
    message = f"{', '.join(spec.requirements.packages) or f'Python {spec.requirements.python}'}, by uv"[:500]
    if daemon.services.packages.is_built(spec):
        return _Step(path, "present", message)
    return _Step(path, "installing", message, lambda: daemon.services.packages.prepare(spec))


_STEPS: Final[Mapping[str, Callable[[Daemon, ToolFile, str], _Step | None]]] = {
    "script": _of_script,
    "server": _of_server,
    "python": _of_python,
}
