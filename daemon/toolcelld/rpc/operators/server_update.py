"""Another version of an MCP server, tried before the configuration has it: installed, and asked for its tools in a cell."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from toolcell_proto.v1 import operator_pb2 as pb
from toolcelld.catalog.assembly import assemble
from toolcelld.catalog.catalog import Catalog, ToolInfo
from toolcelld.catalog.discovery.scan import Scan
from toolcelld.catalog.discovery.servers import CommandError, package_of, with_version
from toolcelld.catalog.discovery.sources import ToolFile, project_above, server_source
from toolcelld.catalog.promise import difference, promise_of
from toolcelld.config.schema import SourceSection
from toolcelld.daemon import Daemon
from toolcelld.environments.packages import PackagesError, manifest_of_packages
from toolcelld.errors import BadRequest
from toolcelld.policy.decisions.promises import text_of
from toolcelld.policy.decisions.trust import digest_of

WORD_CHARACTERS_MAX: Final = 64


def server_section(daemon: Daemon, name: str) -> SourceSection:
    """Return what the configuration says of an MCP server. Raises `BadRequest` where it has none of that name."""
    section = daemon.config.sources.get(name)
    if section is not None and section.mcp:
        return section
    servers = [other for other, it in daemon.config.sources.items() if it.mcp]
    has = f"it has {', '.join(servers)}" if servers else "it has none"
    raise BadRequest(
        f"the configuration has no MCP server {name[:WORD_CHARACTERS_MAX]}; {has}.", field="server"
    )


async def try_server(daemon: Daemon, catalog: Catalog, name: str, version: str) -> pb.TryServerResponse:
    """Install another version of a server, and return what its tools are then; of the one that it has, only that it has it.

    Args:
        daemon: The daemon.
        catalog: That of the directory that it is tried for.
        name: That of its source.
        version: The version; empty for the newest that its registry has.

    Raises:
        BadRequest: There is no such server, or its version cannot be another.
    """
    section = server_section(daemon, name)
    response = pb.TryServerResponse(before=section.mcp)
    try:
        response.version = version or await _newest(daemon, catalog.directory, section)
        command = with_version(section.mcp, response.version)
    except CommandError as error:
        raise BadRequest(f"the command of {name} {error}.", field="version") from error
    except PackagesError as error:
        response.problem = str(error)
        return response
    response.command.extend(command)
    if not version and command == section.mcp:
        return response
    wanted = section.model_copy(update={"mcp": command})
    source = await asyncio.to_thread(_source, daemon, catalog.directory, name, wanted)
    if source is None:
        raise BadRequest(f"the command of {name} cannot be started.", field="version")
    response.packages.extend(source.scripts or source.requires)
    try:
        await _install(daemon, source)
    except PackagesError as error:
        response.problem = str(error)
        return response
    description = await daemon.services.describe(source)
    if description.broken is not None:
        response.problem = description.broken.message
        return response
    daemon.services.catalogs.keep(source, description)
    found = assemble(Scan(catalog.directory, (source,)), {source.digest: description}).files
    tools = found.get(source.path, ())
    response.tools.extend([await _told(daemon, tool) for tool in tools])
    response.tools.extend(_gone(catalog, name, tools))
    response.digest = digest_of((), (tool.promise for tool in tools))
    return response


async def _newest(daemon: Daemon, directory: str, section: SourceSection) -> str:
    package, npm = package_of(section.mcp)
    return await daemon.newest(package, directory, npm=npm)


def _source(daemon: Daemon, directory: str, name: str, section: SourceSection) -> ToolFile | None:
    settings = daemon.config.daemon
    project = project_above(directory, settings.safe_directories, settings.flavours)
    return server_source(daemon.config, name, section, project).server


async def _install(daemon: Daemon, file: ToolFile) -> None:
    """Install packages of npm; those of Python are installed when the server is described. Raises `PackagesError`."""
    if not file.scripts:
        return
    manifest = manifest_of_packages(file.path, file.scripts)
    lock, manager = daemon.installations.choose(manifest)
    if not daemon.installations.is_installed(manifest, lock):
        await daemon.install(manifest, lock, manager)


async def _told(daemon: Daemon, tool: ToolInfo) -> pb.ToolAsks:
    accepted = daemon.services.ruleset.promises.of(tool)
    if accepted == tool.promise:
        return pb.ToolAsks(tool=tool.name, state="granted")
    if accepted is None:
        return pb.ToolAsks(tool=tool.name, state="new")
    before = await text_of(daemon.services.store, tool)
    shown = await asyncio.to_thread(lambda: difference(before, promise_of(tool)))
    return pb.ToolAsks(tool=tool.name, state="changed", difference=shown)


def _gone(catalog: Catalog, name: str, tools: tuple[ToolInfo, ...]) -> Iterator[pb.ToolAsks]:
    there = {tool.name for tool in tools}
    for offered in (tool for of_file in catalog.files.values() for tool in of_file):
        if offered.file.source == name and offered.promise and offered.name not in there:
            yield pb.ToolAsks(tool=offered.name, state="gone")
