"""git for repositories of unknown origin: nothing that a repository configures is run.

A repository's own configuration can name programs that git runs: `core.fsmonitor`, hooks, filters, diff drivers,
transports of promisor remotes. There is no option that switches all of them off, so git does not get that configuration.
It works on a git directory of its own, which is made for one call in the cell's temporary directory: links to the objects,
references and index of the repository, and a configuration of the few keys below, which say how files are compared and
name no program. The configurations of the user and of the system are not read either, and submodules are not entered.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from toolcell import ToolContext, ToolError

KEPT: Final = frozenset(
    {
        "core.repositoryformatversion",
        "core.filemode",
        "core.symlinks",
        "core.ignorecase",
        "core.autocrlf",
        "core.eol",
        "core.sparsecheckout",
        "core.sparsecheckoutcone",
        "extensions.objectformat",
        "extensions.refstorage",
    }
)
VALUE: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
LINKED: Final = ("objects", "refs", "packed-refs", "shallow", "info", "reftable")
"""Shared by all worktrees of a repository."""
FILE_BYTES_MAX: Final = 64 * 1024
"""Of a file of the git directory that is read here; each has one line."""
PLAIN: Final = {
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C.UTF-8",
}


class Repository:
    """A repository as git may see it, with the git directory that was made for it.

    `config` is what its own configuration says, by key; keys are in lower case but for the middle part.
    """

    def __init__(self, context: ToolContext, directory: Path, config: Mapping[str, str]) -> None:
        self.config = config
        self._context = context
        self._environment = {
            **PLAIN,
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(directory),
            "GIT_DIR": str(directory),
            "GIT_WORK_TREE": str(context.worktree),
        }

    async def git(self, *arguments: str) -> str:
        """Run git in the session's directory and return its output. Raises `ToolError` if it fails."""
        return await _git(self._context, self._environment, str(self._context.directory), *arguments)


@asynccontextmanager
async def opened(context: ToolContext) -> AsyncGenerator[Repository]:
    """Open the repository of a session for one call. Raises `ToolError` where there is none."""
    found = _git_directory(Path(context.worktree))
    shared = _shared(found)
    with tempfile.TemporaryDirectory(prefix="toolcell-git-") as name:
        directory = Path(name)
        config = await _config(context, directory, shared)
        _fill(directory, found, shared, config)
        yield Repository(context, directory, config)


async def _config(context: ToolContext, directory: Path, shared: Path) -> dict[str, str]:
    """Return what the repository's configuration says; git reads it as data, without what it includes."""
    environment = {**PLAIN, "PATH": os.environ.get("PATH", os.defpath), "GIT_DIR": str(directory)}
    of_file = ("--file", str(shared / "config"), "--no-includes")
    listed = await _git(context, environment, str(directory), "config", *of_file, "--null", "--list")
    entries = (entry.partition("\n") for entry in listed.split("\0") if entry)
    return {key: value for key, _, value in entries}


async def _git(context: ToolContext, environment: Mapping[str, str], directory: str, *arguments: str) -> str:
    done = await context.exec("git", *arguments, cwd=directory, env=environment)
    if done.code:
        raise ToolError(f"git {arguments[0]} failed: {done.stderr.strip() or f'exit code {done.code}'}")
    if done.truncated:
        return done.stdout + "\n[The output of git was longer than 10 MiB; its end is left out.]"
    return done.stdout


def _git_directory(worktree: Path) -> Path:
    """Return the git directory of a worktree, where `.git` is a directory or a file that names one."""
    path = worktree / ".git"
    if path.is_dir():
        return path
    named = _line(path)
    if not named.startswith("gitdir:"):
        raise ToolError(f"{worktree} is no git repository: it has no .git.")
    return worktree / named.removeprefix("gitdir:").strip()


def _shared(directory: Path) -> Path:
    """Return the directory that all worktrees of a repository share."""
    named = _line(directory / "commondir")
    return directory / named if named else directory


def _line(path: Path) -> str:
    """Return the one line of a file; empty where there is no such file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ToolError(f"{path} cannot be read: {error.strerror}.") from error
    with os.fdopen(descriptor, "rb") as file:
        try:
            return file.read(FILE_BYTES_MAX).decode(errors="surrogateescape").strip()
        except OSError as error:  # a directory
            raise ToolError(f"{path} cannot be read: {error.strerror}.") from error


def _fill(directory: Path, found: Path, shared: Path, config: Mapping[str, str]) -> None:
    """Make the git directory: its configuration and HEAD are files of its own, the rest are links."""
    lines = ["[core]", "\tbare = false"]
    for key in KEPT & config.keys():
        section, _, name = key.partition(".")
        if VALUE.fullmatch(config[key]):
            lines += [f"[{section}]", f"\t{name} = {config[key]}"]
    (directory / "config").write_text("\n".join([*lines, ""]), encoding="ascii")
    head = _line(found / "HEAD")
    (directory / "HEAD").write_bytes(f"{head}\n".encode(errors="surrogateescape"))
    above = {name: shared / name for name in LINKED}
    own = {path.name: path for path in (found / "index", *sorted(found.glob("sharedindex.*")))}
    for name, path in {**above, **own}.items():
        if path.exists():
            (directory / name).symlink_to(path.absolute())


def without_credentials(url: str) -> str:
    """Return the URL of a remote without the user and password that some have in it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url.rpartition("@")[2]
    if not parts.scheme or "@" not in parts.netloc:
        return url  # a path, or git@host:path, where the user is no secret
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
