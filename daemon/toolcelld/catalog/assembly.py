"""Makes the catalog of a directory from what was found there.

A `Scan` lists the files, a `Description` holds the tools that loading one file produced, and `assemble` combines both into a
`Catalog`. Everything here is pure and may run in a thread.

A description comes from a worker that ran untrusted code, or from a cache on disk. Names, sizes, schemas and options are
therefore checked before a tool enters the daemon.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from toolcell._file_kinds import kind_of, tool_stem
from toolcell._printable import printable
from toolcelld.catalog.catalog import Catalog, ToolInfo, line_of_text, shown_path
from toolcelld.catalog.describing.description import BrokenFile, Described, Description
from toolcelld.catalog.describing.offers import checked as checked_offers
from toolcelld.catalog.describing.schemas import check_schemas
from toolcelld.catalog.discovery.scan import Scan
from toolcelld.catalog.discovery.sources import BUILTIN, ToolFile
from toolcelld.catalog.problem import Problem, no_tool
from toolcelld.catalog.promise import digest_of
from toolcelld.config.remedies import set_command
from toolcelld.config.resolution.declaration import DeclarationError, declare

DESCRIPTION_BYTES_MAX = 8 * 1024  # a gRPC message of 64 KiB holds it, the schema and a path
TOOLS_PER_FILE_MAX = 128  # agents accept about as many in total
TOOLS_MAX = 5000  # of one directory
MESSAGE_LETTERS_MAX = 2000  # the last lines of a traceback; the log has all of it
CAUSE_LETTERS_MAX = 300  # of what a model reads for each call of a version that is kept
KEPT = "; what it was before is still used"

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def assemble(
    scan: Scan,
    descriptions: Mapping[str, Description],
    previous: Catalog | None = None,
    is_trusted: Callable[[ToolInfo], bool] = lambda _: True,
    is_enabled: Callable[[str], bool] = lambda _: True,
    overrides_builtin: Callable[[str], bool] = lambda _: False,
    denied_by: Callable[[ToolInfo], str] = lambda _: "",
    taken_out: Mapping[str, str] = MappingProxyType({}),
) -> Catalog:
    """Build the catalog of a scan.

    Args:
        descriptions: The descriptions that are known so far, by digest of the file.
        previous: The catalog before this one; broken files keep their tools from it. The new catalog has the
            same generation number, which the publisher increments.
        is_trusted: Whether a tool may hide another one of its name. A tool that is not trusted comes after all others,
            as it would receive arguments that are meant for them.
        is_enabled: Whether the tool of a name is switched on; one that is not is kept apart and not offered.
        overrides_builtin: Whether a trusted tool of a name may replace a built-in one, Toolcell's or its agent's.
        denied_by: The permission rule that denies a tool, or an empty text. Such a tool is kept apart, too.
        taken_out: The tools that an operator has disabled, by name, with the text that says so. They are kept apart, too.
    """
    good: dict[str, tuple[ToolInfo, ...]] = {}
    winners: dict[str, ToolInfo] = {}
    untrusted: list[ToolInfo] = []
    problems: list[Problem] = []
    awaited: set[str] = set()
    outdated: dict[str, str] = {}
    described: dict[str, Description] = {}
    for entry in scan.found:
        before = previous.files.get(entry.path) if previous else None
        if isinstance(entry, Problem):
            tools, news = _kept(before if entry.reason == "broken" else None, entry)
        elif (description := descriptions.get(entry.digest)) is None:
            awaited.add(entry.path)
            tools, news = before, []  # keep the last valid tools until it is described
        elif description.broken is not None:
            tools, news = _kept(before, _broken(entry, description.broken))
        else:
            checked = previous is not None and previous.described.get(entry.path) is description
            if before and checked and len(before) == len(description.tools):
                tools, news = before, _rejected(entry, description)  # by an earlier generation
            else:
                tools, news = _checked(entry, description)
            described[entry.path] = description
        problems += news
        if tools is not None:
            good[entry.path] = tools
            if tools is before and entry.path in awaited:
                outdated[entry.path] = ""
            elif news and news[0].reason == "stale":
                outdated[entry.path] = _cause(news[0])
            flagged = (_flagged(tool, overrides_builtin) for tool in tools if is_trusted(tool))
            problems += _entered(flagged, winners, scan.directory)
            untrusted += (tool for tool in tools if not is_trusted(tool))
    problems += _entered(untrusted, winners, scan.directory, is_trusted)
    problems += _without_tools(scan, descriptions)
    denied = {name: rule for name, tool in winners.items() if (rule := denied_by(tool))}
    off = {name for name in winners if name in denied or name in taken_out or not is_enabled(name)}
    catalog = Catalog(scan.directory)
    return replace(
        catalog,
        generation=previous.generation if previous else 0,
        tools={
            name: tool for name, tool in sorted(winners.items()) if name not in off and tool.offers is None
        },
        doors={
            name: tool
            for name, tool in sorted(winners.items())
            if name not in off and tool.offers is not None
        },
        disabled={name: tool for name, tool in sorted(winners.items()) if name in off},
        denied=denied,
        taken_out={name: text for name, text in taken_out.items() if name in off},
        problems=tuple(problems),
        awaited=frozenset(awaited),
        coming=frozenset(tool_stem(path) for path in awaited if path not in good),
        files=good,
        described=described,
        outdated=outdated,
    )


def _without_tools(scan: Scan, descriptions: Mapping[str, Description]) -> Iterator[Problem]:
    """Yield a note for each file that has neither a tool nor a problem, and that no other file imports."""
    described = [(file, descriptions.get(file.digest)) for file in scan.files]
    helpers = {
        os.path.join(file.directory, name)
        for file, description in described
        if description is not None
        for name in description.helpers
    }
    for file, description in described:
        if description is None or description.tools or description.broken:
            continue
        if not all(problem.remark for problem in description.problems):
            continue
        if file.path not in helpers:
            yield no_tool(file.path, _text(description.absence))


def _kept(
    before: tuple[ToolInfo, ...] | None, problem: Problem
) -> tuple[tuple[ToolInfo, ...] | None, list[Problem]]:
    """Return the last valid tools of a broken file, and the problem to report."""
    if not before:
        return None, [problem]
    first, *rest = problem.message.split("\n")
    message = "\n".join([f"{first}{KEPT}", *rest])
    return before, [replace(problem, reason="stale", message=message)]


def _cause(stale: Problem) -> str:
    """Return in one line what is wrong with a file of which the last valid version is kept."""
    first = stale.message.partition("\n")[0].removesuffix(KEPT)
    return line_of_text(f"line {stale.line}: {first}" if stale.line else first)[:CAUSE_LETTERS_MAX]


def _broken(file: ToolFile, broken: BrokenFile) -> Problem:
    message = _text(broken.message) or f"gave nothing ({_text(broken.stage)})"
    if broken.remedy:
        message += "\n" + broken.remedy
    return Problem(file.path, "", "broken", message, _line(broken.line))


def _rejected(file: ToolFile, description: Description) -> list[Problem]:
    """Return the tools that the worker rejected, and its remarks, as problems."""
    return [
        Problem(
            file.path,
            _text(rejected.tool),
            "remark" if rejected.remark else "rejected",
            _text(rejected.message),
            _line(rejected.line),
        )
        for rejected in description.problems[:TOOLS_PER_FILE_MAX]
    ]


def _checked(file: ToolFile, description: Description) -> tuple[tuple[ToolInfo, ...], list[Problem]]:
    """Return the valid tools of a description, and problems for the others."""
    problems = _rejected(file, description)
    if len(description.tools) > TOOLS_PER_FILE_MAX:
        message = f"{len(description.tools)} tools; only the first {TOOLS_PER_FILE_MAX} of a file are used"
        problems.append(Problem(file.path, "", "rejected", message))
    tools: list[ToolInfo] = []
    for described in description.tools[:TOOLS_PER_FILE_MAX]:
        try:
            tool = replace(_tool(file, described), on_session=description.on_session)
            tools.append(tool if file.share is None else replace(tool, promise=digest_of(tool)))
        except ValueError as error:
            problem = Problem(
                file.path, _text(described.name)[:64], "rejected", _text(str(error)), _line(described.line)
            )
            problems.append(problem)
    return tuple(tools), problems


def _tool(file: ToolFile, described: Described) -> ToolInfo:
    """Check a described tool. Raises `ValueError` that says what is wrong and what to write instead."""
    if not _NAME.fullmatch(described.name) or "__" in described.name:
        raise ValueError("its name must be 1 to 64 letters, digits, - and _, without __; say @tool(name=…)")
    # Hosts show it on terminals, and a bidirectional mark would let it read otherwise than it is.
    text = described.description.encode().decode()  # half of a surrogate pair is refused
    description = printable(text)
    size = len(description.encode())
    if size > DESCRIPTION_BYTES_MAX:
        raise ValueError(
            f"its description has {size} bytes, at most {DESCRIPTION_BYTES_MAX} are read; shorten it"
        )
    check_schemas(described.input_schema, described.output_schema)
    try:
        declared = declare(described.options)
    except DeclarationError as error:
        raise ValueError(f"cannot be declared: {error}") from error
    return ToolInfo(
        described.name,
        description,
        described.input_schema,
        file,
        described.export,
        {key: value for key, value in described.options.items() if key not in {"name", "description"}},
        read_only=declared.read_only,
        destructive=declared.destructive if "destructive" in declared.model_fields_set else None,
        idempotent=declared.idempotent,
        network=bool(declared.network) if "network" in declared.model_fields_set else None,
        plugin=line_of_text(declared.plugin),
        title=line_of_text(declared.title),
        ends_turn=declared.ends_turn,
        output_schema=described.output_schema,
        offers=None if described.offers is None else checked_offers(described.offers),
    )


def redefined(tool: ToolInfo, description: str, input_schema: bytes) -> ToolInfo:
    """Return a tool with another definition, checked like that of a file. Raises `ValueError`."""
    described = Described(
        tool.name,
        description,
        input_schema,
        tool.export,
        tool.declared,
        output_schema=tool.output_schema,
    )
    checked = _tool(tool.file, described)
    return replace(tool, description=checked.description, input_schema=checked.input_schema)


def _entered(
    tools: Iterable[ToolInfo],
    winners: dict[str, ToolInfo],
    directory: str,
    is_trusted: Callable[[ToolInfo], bool] = lambda _: True,
) -> Iterator[Problem]:
    """Add a file's tools to the catalog; yield a problem for each that is shadowed or rejected."""
    for tool in tools:
        if len(winners) >= TOOLS_MAX and tool.name not in winners:
            message = f"a directory has at most {TOOLS_MAX} tools, and this is one more"
            yield Problem(tool.path, tool.name, "rejected", message)
            continue
        winner = winners.setdefault(tool.name, tool)
        if winner is tool:
            continue
        if winner.file.source == BUILTIN:
            if not tool.overrides_builtin:
                yield _protected(tool, directory)
                continue
            winners[tool.name], winner, tool = tool, tool, winner
        here, there = (shown_path(path, directory) for path in (tool.path, winner.path))
        if winner.scope != tool.scope:
            message = f"{tool.name} of {here} is hidden by that of {there}"
            if not is_trusted(tool):
                message += f"\nUntrusted tools replace no others. To trust it: toolcell trust {directory}"
            yield Problem(tool.path, tool.name, "shadowed", message)
        else:
            kind = kind_of(tool.path)
            how = kind.renaming if kind is not None else ""
            message = f"{tool.name} of {here} has the name of one in {there}, which is kept; rename one{how}"
            yield Problem(tool.path, tool.name, "rejected", message)


def _flagged(tool: ToolInfo, overrides_builtin: Callable[[str], bool]) -> ToolInfo:
    """Return a tool with what the configuration says now about built-in tools of its name."""
    flag = tool.file.source != BUILTIN and overrides_builtin(tool.name)
    return tool if tool.overrides_builtin == flag else replace(tool, overrides_builtin=flag)


def _protected(tool: ToolInfo, directory: str) -> Problem:
    message = (
        f"{tool.name} of {shown_path(tool.path, directory)} has the name of a built-in tool, which is kept; rename it\n"
        f"To replace the built-in tool: {set_command(('tool', tool.name, 'overrides_builtin'), True)}\n"
        "The tools of an untrusted project replace none."
    )
    return Problem(tool.path, tool.name, "rejected", message)


def _text(text: str) -> str:
    """Bound a text from a worker and make it valid UTF-8."""
    if len(text) > MESSAGE_LETTERS_MAX:
        text = text[: MESSAGE_LETTERS_MAX - 1] + "…"
    return text.encode(errors="replace").decode()


def _line(line: int) -> int:
    return min(max(line, 0), 2**31 - 1)
