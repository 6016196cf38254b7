"""Public tool files in TypeScript, unmodified: where they are from, and what becomes of each under Bun and under Node.

    python -m tests.libraries.public_tools >tests/libraries/typescript-files.md

$TOOLCELL_TOOL_FILES holds the repositories as OWNER/NAME, checked out at the commits below; `make test-libraries` unpacks
the packages of npm into $TOOLCELL_LIBRARIES/npm. None of their code is in this repository. A file is put where its author
has it, in a project or in the user's directory, and loaded by a real daemon in `strict`, without packages installed.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tests.daemons import RunningDaemon, renewed, running_daemon
from tests.engines import ENGINES

__all__ = ["LOADS", "ORIGINS", "PAGE", "Origin", "daemon_of", "load", "place_of", "rows"]

PAGE: Final = Path(__file__).with_name("typescript-files.md")
PLACES: Final = ("TOOLCELL_TOOL_FILES", "TOOLCELL_LIBRARIES")
"""Variables of directories that hold origins by their names."""
PI: Final = "packages/coding-agent/examples"


@dataclass(frozen=True, slots=True)
class Origin:
    """A directory of tool files of one repository, or of one package of npm."""

    name: str  # OWNER/NAME, or npm/PACKAGE
    commit: str  # or the version
    licence: str
    directory: str
    layout: Literal["project", "user", "omp"]


ORIGINS: Final = (
    Origin("EzraApple/fern", "f2e845d4cc4c39c48a25b15f41f5cf2937722631", "none", "src/.opencode/tool", "project"),
    Origin("EzzatOmar/bake", "175d96e4a32575f34b8b90ff5666ed9070815aaa", "MIT", ".opencode/tool", "project"),
    Origin("RashikShahjahan/story", "66dbd9cbe51cff477b33dc96acd4c4bd89b8db31", "none", ".opencode/tools", "project"),
    Origin("affaan-m/everything-claude-code", "c40b6c0cf5968f606ff0d45071a0495b015d0ff5", "MIT", ".opencode/tools", "project"),
    Origin("darrenhinde/OpenAgents", "2dd76571f300355c5272a1f849d5cb5940538868", "MIT", ".opencode/tool", "project"),
    Origin("stevenke1981/opencode-controlled-workflow-openagent", "6f8c0e04079b1baeb583814262fcd7d2c6e4b18d", "none", ".opencode/tools", "project"),
    Origin("xcl1989/OpenHub", "581c16ec3a303d355e5d181b1270e95f31fd1f04", "none", ".opencode/tools", "project"),
    Origin("yohi/omo-sdd-hybrid", "47f4f8e9a1054ec0ebe80767b003a366982a67a9", "none", ".opencode/tools", "project"),
    Origin("ada-x64/opencode-config", "fede76505bc81de8dfc3ddf8cbbb099d5d9bad13", "none", "src/tools", "user"),
    Origin("chaddm/ad-astra-per-aspera", "b2fec02a3a3a42f696d296ae239569564397ac1a", "none", "tool", "user"),
    Origin("joelhooks/opencode-config", "e7ba457a6f9c8722a3aa4d04bbef7e5dcd8846ae", "none", "tool", "user"),
    Origin("remorses/opencode-config", "c235a71df6e025631714861bf45c6fef40d4eb3a", "none", "tools", "user"),
    Origin("can1357/oh-my-pi", "adad196fd3bad10d06e57eda4c01ad7ae787c7ec", "MIT", f"{PI}/custom-tools", "omp"),
    Origin("can1357/oh-my-pi", "adad196fd3bad10d06e57eda4c01ad7ae787c7ec", "MIT", f"{PI}/extensions", "omp"),
    Origin("steipete/pi-mono", "4492a3f3040fe277f13132a0cf111e161082994f", "MIT", f"{PI}/custom-tools", "omp"),
    Origin("npm/@oh-my-pi/pi-coding-agent", "18.3.4", "MIT", "examples/custom-tools", "omp"),
    Origin("npm/@oh-my-pi/pi-coding-agent", "18.3.4", "MIT", "examples/extensions", "omp"),
    Origin("npm/@mariozechner/pi-coding-agent", "0.73.1", "MIT", "examples/extensions", "omp"),
    Origin("bastani-inc/atomic", "6031a9269809c4a556420b8a698704ba6da47754", "MIT", f"{PI}/extensions", "omp"),
    Origin("mitsuhiko/agent-stuff", "cc4b711dc6a2bee2aefb89820600e38291500543", "Apache-2.0", "extensions", "omp"),
    Origin("l-lin/dotfiles", "3b06a4f126ebcf1f6dc52157251a5650be74b9bf", "none", "home-manager/modules/share/ai/pi/.pi/agent/extensions", "omp"),
    Origin("roybotbot/pi-vs-claude-code", "ca6b1143391a80af027b1c392bf4c140e295930e", "none", "extensions", "omp"),
)  # fmt: skip

TOOL: Final = {
    "project": re.compile(r"\bexecute\b"),
    "user": re.compile(r"\bexecute\b"),
    "omp": re.compile(r"\bregisterTool\b|\bCustomTool(Factory|API)\b"),
}
"""What a file has that may define a tool, by its origin's layout."""
LOADS: Final = re.compile(r"\d+ tools?")
"""What the page says of a file that offers tools."""
DESCRIBE_SECONDS: Final = 90
REASONS: Final[tuple[tuple[str, str], ...]] = (
    (r"(\S+) is not installed; nothing is installed during a call", "needs the package {0}"),
    (r"imports (\S+), which is part of Bun", "needs Bun: imports {0}"),
    (r"Cannot find module '(?:\S*/)?([^/']+)'", "imports {0}, which its build makes"),
    (r"\Acreate\w+Tool is a part of the host", "wraps a tool that is built into its host"),
    (r"\A(\w+) is a part of the host", "calls {0} of its host when it is loaded"),
    (r"has no tool", "has no tool"),
)
"""What a problem says, and the one sentence that the page has for it."""


def place_of(origin: Origin) -> Path | None:
    """Return where an origin is on this machine, or None."""
    places = [Path(os.environ[name]) / origin.name for name in PLACES if name in os.environ]
    return next((place for place in places if (place / origin.directory).is_dir()), None)


@contextmanager
def daemon_of(engine: str) -> Generator[RunningDaemon]:
    """A daemon in `strict` that has this engine alone."""
    config = 'trust = "all"\n[defaults]\nsandbox = "strict"\n'
    path = f"{ENGINES[engine].parent}:/usr/bin:/bin"
    with running_daemon(environment={"PATH": path}, config=config) as daemon:
        yield daemon


def files_of(origin: Origin, place: Path) -> Iterator[str]:
    """Yield those files of an origin that may define a tool, of those that a loader of tools looks at."""
    tools = place / origin.directory
    for path in sorted([*tools.glob("*.[jt]s"), *tools.glob("*/index.[jt]s")]):
        if TOOL[origin.layout].search(path.read_text(encoding="utf-8", errors="replace")):
            yield str(path.relative_to(tools))


async def load(daemon: RunningDaemon, origin: Origin, place: Path) -> dict[str, str]:
    """Load the files of an origin, and return what became of each: its number of tools, or one sentence."""
    session_directory, tools = _put(daemon, origin, place)
    wanted = list(files_of(origin, place))
    async with daemon.connect(directory=session_directory) as session:
        await session.described(DESCRIBE_SECONDS)
        catalog = session.catalog
    found = Counter(str(tool.path) for tool in catalog.tools.values())
    problems: dict[str, list[str]] = {}
    for problem in catalog.problems:
        problems.setdefault(problem.path, []).append(problem.message)
    return {file: _outcome(found[str(tools / file)], problems.get(str(tools / file), [])) for file in wanted}


def _put(daemon: RunningDaemon, origin: Origin, place: Path) -> tuple[Path, Path]:
    """Copy the origin where its author has it; return the session's directory, and that of the tools."""
    if origin.layout == "omp":
        tools = daemon.project / ".omp" / "tools"
        shutil.copytree(place / origin.directory, tools, symlinks=True)
        return daemon.project, tools
    base = daemon.project if origin.layout == "project" else daemon.directory / ".config" / "opencode"
    shutil.copytree(place, base, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".git"))
    (base / ".git").mkdir()  # it is a worktree for its author
    if origin.layout == "project":
        session = base / Path(origin.directory).parent.parent
        return session, base / origin.directory
    source = base / Path(origin.directory).parent
    if source != base:  # what its author copies there
        shutil.copytree(source, base, symlinks=True, dirs_exist_ok=True)
    return daemon.project, base / Path(origin.directory).name


def _outcome(tools: int, problems: list[str]) -> str:
    if tools and not problems:
        return "1 tool" if tools == 1 else f"{tools} tools"
    for message in problems:
        for pattern, reason in REASONS:
            if found := re.search(pattern, message):
                return reason.format(*(f"`{group}`" for group in found.groups()))
    return problems[0].splitlines()[0] if problems else "not looked at"


def rows(page: str) -> dict[tuple[str, str], dict[str, tuple[str, str]]]:
    """Return what the page says: by origin and directory, by file, of Bun and of Node."""
    said: dict[tuple[str, str], dict[str, tuple[str, str]]] = {}
    current: dict[str, tuple[str, str]] = {}
    for line in page.splitlines():
        if heading := re.match(r"## `(.+)`: `(.+)`", line):
            current = said.setdefault((heading[1], heading[2]), {})
        elif (cells := [cell.strip() for cell in line.split("|")[1:-1]]) and cells[0].startswith("`"):
            current[cells[0].strip("`")] = (cells[1], cells[2])
    return said


HEAD: Final = """# Public tool files in TypeScript

Tool files for OpenCode, Atomic, oh-my-pi and pi from public repositories, as they are, and what becomes of each: loaded by a daemon in `strict`, none of their packages installed.
[public_tools.py](public_tools.py) makes the tables and says how.
`make test-libraries` checks those of npm, and those of repositories that it finds below `$TOOLCELL_TOOL_FILES`.
No public file imports `@atomic/plugin`: Atomic has become a distribution of pi and takes its extensions, of which some examples are therefore here twice.

{files} files: {bun} offer their tools under Bun, {node} under Node.
What a file lacks is named as its problem names it, the first of several packages.
"""


def page(results: Mapping[Origin, Mapping[str, tuple[str, str]]]) -> str:
    """Return the page for these results."""
    every = [pair for files in results.values() for pair in files.values()]
    loads = [sum(LOADS.fullmatch(pair[number]) is not None for pair in every) for number in (0, 1)]
    parts = [HEAD.format(files=len(every), bun=loads[0], node=loads[1])]
    for origin, files in results.items():
        parts.append(f"## `{origin.name}`: `{origin.directory}`\n")
        licence = "no licence" if origin.licence == "none" else f"licence {origin.licence}"
        parts.append(f"At `{origin.commit}`, {licence}.\n")
        parts.append("| File | Bun | Node |\n|---|---|---|")
        parts += [f"| `{file}` | {bun} | {node} |" for file, (bun, node) in files.items()]
        parts.append("")
    return "\n".join(parts)


async def _all() -> dict[Origin, dict[str, tuple[str, str]]]:
    results: dict[Origin, dict[str, list[str]]] = {}
    for engine in sorted(ENGINES):  # as the columns
        with daemon_of(engine) as daemon:
            for origin in ORIGINS:
                if (place := place_of(origin)) is None:
                    sys.exit(f"{origin.name} is not there; see the head of {__file__}")
                with renewed(daemon):
                    for file, outcome in (await load(daemon, origin, place)).items():
                        results.setdefault(origin, {}).setdefault(file, []).append(outcome)
    return {
        origin: {file: (bun, node) for file, (bun, node) in files.items()}
        for origin, files in results.items()
    }


if __name__ == "__main__":
    print(page(asyncio.run(_all())), end="")
