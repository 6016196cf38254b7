"""Sources: the directories and servers that tools come from, in their order of precedence."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from toolcell import _paths
from toolcell._file_kinds import kind_of
from toolcell._owners import fault_below, faults_of, walk
from toolcell._paths import is_below
from toolcelld.catalog.discovery.digest import UNWATCHED
from toolcelld.catalog.discovery.packaged import packaged_tools
from toolcelld.catalog.discovery.project_servers import SERVERS_FILE, ServersFileError, shipped
from toolcelld.catalog.discovery.servers import (
    CommandError,
    content_of,
    digest_of,
    entry_path,
    launch_of,
    placed,
)
from toolcelld.config.enforcement import enforced_by
from toolcelld.config.load import Config
from toolcelld.config.mistakes import ConfigError
from toolcelld.config.project_file import ASKS_NOTHING, ProjectFile
from toolcelld.config.project_file import read as read_project_file
from toolcelld.config.remedies import CONFIG_FILE, set_command
from toolcelld.config.schema import PROJECT, OnAbort, Share, SourceSection
from toolcelld.environments.engine import EngineName, ScriptEngine
from toolcelld.flavours import (
    OTHER_FLAVOURS,
    makes_project,
    plugin_places,
    project_of,
    project_places,
    user_places,
)

PROJECT_PLUGINS = os.path.join(".toolcell", "plugins")
BUILTIN = "builtin"
"""The pack whose names are protected, so that it comes before all other sources."""
CODE = (".py", ".pyc", ".so", ".ts", ".tsx", ".mts", ".cts", ".js", ".jsx", ".mjs", ".cjs", ".json", ".node")
"""Endings of what a tool file can import that lies beside it."""
PRIORITIES = {PROJECT: 4, "user": 2}  # of the sources that are there without configuration; 1 for others


@dataclass(frozen=True, slots=True)
class Source:
    """Directories of tools with one scope, one interpreter and one set of programs."""

    name: str
    scope: str  # "local" (project), "global" (user), or the name
    directories: tuple[str, ...]
    python: str | None = None  # absolute path; None is Toolcell's own interpreter
    programs: tuple[str, ...] = ()  # directories put before the system's on PATH
    requires: tuple[str, ...] = ()  # packages that an environment is built of
    project_file: bytes = b""  # the content of the project's own configuration
    asked: ProjectFile = ASKS_NOTHING  # what it says
    mistakes: str = ""  # what is wrong with it
    only: str = ""  # the name of one file of the directory; empty for all
    plugins: tuple[str, ...] = ()  # directories of plugin files
    runtime: EngineName | None = None  # the engine of its scripts; None is the first that is there
    listed: str = ""  # what names the one file or the directory; empty if it is looked for
    project: str = ""  # of a file that is named by its path and lies in no place for tools
    fault: str = ""  # why none of its files are used: another user could change them
    # Where they may, of a directory below which only its owner and root may write
    safe: tuple[str, ...] | None = None
    server: ToolFile | None = None  # its MCP server, in place of directories
    beside: str = ""  # a file whose changes count, too

    @property
    def places(self) -> tuple[str, ...]:
        """Every directory of it, in order of precedence."""
        return (*self.directories, *self.plugins)


@dataclass(frozen=True, slots=True)
class ToolFile:
    """A file that may define tools, with its content at the time of the scan."""

    path: str
    source: str
    scope: str
    stem: str  # the name of a tool that declares none
    content: bytes
    digest: str  # of the directory's files, the interpreter, our version and this path
    directory: str  # the source's directory, without links
    python: str | None = None
    programs: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()  # packages that its project asks for
    uncovered: str = ""  # what in the directory the digests do not cover
    flavour: str = "toolcell"  # the system whose place it lies in
    asked: ProjectFile = field(default=ASKS_NOTHING, compare=False)  # of its project; the digest covers it
    engine: ScriptEngine | None = None  # what runs it, where it is no Python file
    project: str = ""  # its project, where it lies in no place for tools and was named by its path
    share: Share | None = None  # of an MCP server: who has one process of it in common
    on_abort: OnAbort = "replace"  # the same: what becomes of the process in which a call was stopped
    scripts: tuple[str, ...] = ()  # packages of npm that bring it
    # Of a project's: the digest of the directory's files and of what it asks for, the same on each machine.
    code: str = ""


def project_above(
    directory: str, safe: Collection[str] = (), flavours: Collection[str] = OTHER_FLAVOURS
) -> str:
    """Return the project that a directory is in: the nearest one upwards that has a place for tools, else the directory.

    See `projects_above`.
    """
    return projects_above(directory, safe, flavours)[0]


def projects_above(
    directory: str, safe: Collection[str] = (), flavours: Collection[str] = OTHER_FLAVOURS
) -> tuple[str, ...]:
    """Return the project that a directory is in, and those around it up to the root of their git worktree.

    The search ends at the root of a git worktree, below the home directory, and at a directory that another user can
    write, as any user can make a `.toolcell` in a shared directory. What is above the nearest project counts only in a
    worktree: nothing else says that the directories belong together.

    Args:
        directory: An absolute path without links.
        safe: Directories that are accepted although other users can write in them.
        flavours: The systems whose places count, beside Toolcell's own.

    Returns:
        The nearest one first; the directory alone where there is none.
    """
    home = os.path.realpath(os.path.expanduser("~"))
    try:
        chain = walk(directory, safe)
    except OSError:
        return (directory,)  # it has gone
    found: list[str] = []
    in_worktree = False
    for step in reversed(chain):
        if step.path != directory and (step.fault_within or is_below(home, step.path)):
            break
        if makes_project(step.path, flavours):
            found.append(step.path)
        if in_worktree := os.path.lexists(os.path.join(step.path, ".git")):
            break
    return tuple(found if in_worktree else found[:1]) or (directory,)


def pack_directory(name: str) -> str:
    """Return the directory of a pack that ships with Toolcell."""
    return os.path.join(os.path.dirname(os.path.realpath(_paths.__file__)), "_packs", name)


def sources_of(config: Config, directory: str) -> tuple[Source, ...]:
    """Return the sources for a session's directory, in order of precedence. Blocks on the file system."""
    flavours = config.daemon.flavours
    projects = projects_above(directory, config.daemon.safe_directories, flavours)
    places = {
        PROJECT: ("local", [os.path.join(projects[0], place) for place in project_places(flavours)]),
        "user": ("global", list(user_places(flavours))),
    }
    plugins = {
        PROJECT: (os.path.join(projects[0], PROJECT_PLUGINS),),
        "user": tuple(_paths.plugin_directories(plugin_places())),
    }
    for name, section in config.sources.items():
        if section.directory is not None:
            places[name] = (name, [section.directory])
        elif section.files:
            places[name] = (name, [])

    for name in config.daemon.packs:
        places[name] = (name, [pack_directory(name)])

    def source(name: str, scope: str, directories: list[str]) -> Source:
        section = config.sources.get(name)
        if section is None:
            return Source(name, scope, tuple(directories), plugins=plugins.get(name, ()))
        base = projects[0] if name == PROJECT else (*directories, *map(os.path.dirname, section.files))[0]
        python = section.python and os.path.abspath(os.path.join(base, section.python))
        programs = tuple(os.path.abspath(os.path.join(base, program)) for program in section.programs)
        return Source(
            name,
            scope,
            tuple(directories),
            python,
            programs,
            plugins=plugins.get(name, ()),
            runtime=section.runtime,
            fault=fault_of_place(section.directory, config.daemon.safe_directories)
            if section.directory
            else "",
            safe=config.daemon.safe_directories if section.directory else None,
        )

    found = tuple(source(name, *place) for name, place in places.items())
    found = tuple(
        part for one in found for part in (_levels(one, projects) if one.name == PROJECT else (one,))
    )
    allowed = config.enforce.sources
    if allowed is not None:
        found = tuple(one for one in found if one.name in allowed)
    if config.only:
        return tuple(_named(config, path, found, projects[0]) for path in config.only)
    if any(one.name == PROJECT for one in found):
        found += tuple(_shipped(projects[0]))
    found = tuple(part for one in found for part in (one, *_listed(config, one), *_packaged(config, one)))
    found += tuple(
        server_source(config, name, section, projects[0])
        for name, section in config.sources.items()
        if section.mcp
    )
    return tuple(sorted(found, key=lambda one: _precedence(config, one.name)))


def server_source(config: Config, name: str, section: SourceSection, project: str) -> Source:
    """Return the source of an MCP server of the configuration; with a mistake where it cannot be started.

    Args:
        config: The configuration.
        name: That of the source.
        section: What it says.
        project: The directory of the project that it is for.
    """
    path = entry_path(config.files[-1] if config.files else CONFIG_FILE, name)
    place = "" if section.share == "user" else project
    return _with_server(Source(name, name, ()), path, name, section, place)


def _shipped(project: str) -> Iterator[Source]:
    """Yield a source for each MCP server that a project ships; it asks for nothing beyond its command."""
    path = os.path.join(project, SERVERS_FILE)
    source = Source(PROJECT, "local", ())
    try:
        for it in shipped(project):
            if it.why:
                yield replace(source, listed=path, mistakes=f"its server {it.name} {it.why}.")
            else:
                section = SourceSection.model_construct(mcp=it.command)
                found = _with_server(source, it.path(project), it.name, section, project)
                runs = f"{path}: what its server {it.name} runs"
                yield replace(found, server=found.server and replace(found.server, uncovered=runs))
    except ServersFileError as error:
        yield replace(source, listed=path, mistakes=f"{error}.")


def _with_server(source: Source, path: str, name: str, section: SourceSection, place: str) -> Source:
    """Return a source with a server, as a tool file with that path, or with what is wrong with its command."""
    try:
        launch = launch_of(section.mcp)
        content = content_of(name, launch, placed(launch.words, place), section)
    except CommandError as error:
        return replace(source, listed=path, mistakes=f"its command {error}.")
    server = ToolFile(
        path,
        source.name,
        source.scope,
        name,
        content,
        digest_of(content, section, place),
        os.path.dirname(path),
        requires=launch.packages,
        scripts=launch.scripts,
        project=place,
        share=section.share,
        on_abort=section.on_abort,
    )
    return replace(source, server=server)


def _listed(config: Config, source: Source) -> Iterator[Source]:
    """Yield a source for each file that the configuration lists in a section, in its order."""
    section = config.sources.get(source.name)
    safe = config.daemon.safe_directories
    for path in section.files if section is not None else ():
        found = _source_of(path, (source,))
        yield replace(
            found,
            listed=f"[source.{source.name}] of the configuration",
            fault=fault_of_place(path, safe),
            safe=safe,
        )


def fault_of_place(path: str, safe: Collection[str]) -> str:
    """Return why nothing is used of a directory, or a file, that the configuration names; empty where all is well.

    Code of other users who can write there would run as this user, with all that the configuration gives the source.
    """
    try:
        faults = faults_of(path, safe)
    except OSError:
        return ""  # it is not there, which the scan says
    return _not_used(faults, safe) if faults else ""


def fault_within(directory: str, safe: Collection[str], *, only: bool = False) -> str:
    """Return why nothing is used of a directory that is in order itself: a file or a directory below it is not.

    Args:
        directory: The directory.
        safe: Directories that are accepted.
        only: Whether only one of its files is used, so that what it can import counts. Default: False, and all does.
    """
    fault = fault_below(directory, safe, passed=UNWATCHED, code=CODE if only else ())
    return _not_used([fault], safe) if fault is not None else ""


def _not_used(faults: Sequence[tuple[str, str]], safe: Collection[str]) -> str:
    accepted = set_command(("daemon", "safe_directories"), [*safe, *(place for place, _ in faults)])
    return (
        f"is not used, as {faults[0][1]}: what is put there would run as you\n"
        f"Have it belong to you or root, with no right to write for others. To accept it as it is: {accepted}"
    )


def _packaged(config: Config, source: Source) -> Iterator[Source]:
    """Yield a source for each file or directory that an installed package brings; they are the user's own."""
    if source.name != "user":
        return
    for tool in packaged_tools(config.daemon.flavours):
        if tool.problem:
            yield replace(
                source,
                directories=(),
                plugins=(),
                mistakes=f"{tool.origin}: {tool.problem}",
                listed=tool.path,
            )
        elif tool.has_many:
            yield replace(source, directories=(tool.path,), plugins=())
        else:
            yield replace(_source_of(tool.path, (source,)), listed=tool.origin)


def _named(config: Config, path: str, sources: Sequence[Source], project: str) -> Source:
    """Return the source of a file that is named by its path: with the settings of the project that it lies in."""
    directory = os.path.dirname(path)
    allowed = config.enforce.sources
    if allowed is not None and PROJECT not in allowed and not any(directory in one.places for one in sources):
        mistakes = f"{path} is not used, as it lies in no source of {enforced_by('sources')}"
        return Source(PROJECT, "local", (), mistakes=mistakes, listed=path)
    if any(directory in source.places for source in sources):
        return _source_of(path, sources)
    section = config.daemon
    own = project_above(directory, section.safe_directories, section.flavours)
    if not any(makes_project(place, section.flavours) for place in (own, project)) and is_below(own, project):
        return replace(_source_of(path, sources), project=project)
    around = sources_of(replace(config, only=()), directory)
    around = tuple(sorted(around, key=lambda one: one.name != PROJECT))
    found = _source_of(path, around)
    if directory in around[0].places or found.name != PROJECT:
        return found
    return replace(found, project=own)


def _precedence(config: Config, source: str) -> tuple[bool, bool, int]:
    """Return what sources are sorted by: the built-in one first, then the pinned ones, then the highest priority."""
    section = config.sources.get(source)
    if section is None:
        return source != BUILTIN, True, -PRIORITIES.get(source, 1)
    priority = PRIORITIES.get(source, 1) if section.priority is None else section.priority
    return source != BUILTIN, not section.pinned, -priority


def _levels(nearest: Source, projects: Sequence[str]) -> Iterator[Source]:
    """Yield the source of each project, with what it asks for itself."""
    for project in projects:
        places = [
            tuple(os.path.join(project, os.path.relpath(place, projects[0])) for place in kind)
            for kind in (nearest.directories, nearest.plugins)
        ]
        beside = os.path.join(project, SERVERS_FILE) if project == projects[0] else ""
        yield _asked(replace(nearest, directories=places[0], plugins=places[1], beside=beside), project)


def _asked(source: Source, directory: str) -> Source:
    """Return the source of a project with what `.toolcell/config.toml` asks for, where the user's configuration is silent."""
    try:
        found = read_project_file(directory)
    except ConfigError as error:
        return replace(source, mistakes=str(error), project_file=str(error).encode(errors="replace"))
    if found is None:
        return source
    asked, raw = found
    python = asked.python and os.path.join(directory, asked.python)
    programs = tuple(os.path.join(directory, program) for program in asked.programs)
    return replace(
        source,
        python=source.python or python,
        programs=source.programs or programs,
        requires=asked.requires,
        project_file=raw,
        asked=asked,
    )


def _source_of(path: str, sources: Sequence[Source]) -> Source:
    """Return a source for a single file, with the settings of the source that contains it, else of the first source."""
    directory, name = os.path.split(path)
    home = next((source for source in sources if directory in source.places), sources[0])
    kind = kind_of(name)
    is_plugin = kind is not None and kind.place == "plugins"
    return replace(
        home,
        directories=() if is_plugin else (directory,),
        plugins=(directory,) if is_plugin else (),
        only=name,
    )


def project_directory(file: ToolFile) -> str:
    """Return the directory of the project that contains a tool file."""
    if file.project:
        return file.project
    if found := project_of(file.directory):
        return found
    above, place = os.path.split(file.directory)
    project, hidden = os.path.split(above)
    return project if os.path.join(hidden, place) == PROJECT_PLUGINS else file.directory
