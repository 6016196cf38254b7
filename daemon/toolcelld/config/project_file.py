"""The configuration that a project ships, `.toolcell/config.toml`: what its tools ask for.

    python = ".venv/bin/python"         # the interpreter; relative to the project
    programs = ["node_modules/.bin"]    # directories in front of PATH
    requires = ["httpx<1"]              # packages, which uv installs
    env = ["DATABASE_URL"]
    network = ["api.example.com"]
    secrets = ["TOKEN"]

    [permissions]
    "deploy*" = "ask"                   # or "deny"; of its own tools

    [limits]
    timeout = "5m"

It comes with a repository that was cloned, so it asks and grants nothing: trust in the project does. Reading it is
pure: nothing of it is run or looked up. A link in its place is not followed, as its mistakes are shown with their values.
"""

from __future__ import annotations

import difflib
import errno
import os
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from toolcell import _paths
from toolcelld.config.mistakes import ConfigError, Mistake, dotted, shown
from toolcelld.config.permissions import Stricter, stricter_rules
from toolcelld.config.schema import LimitKeys, Section
from toolcelld.config.values import Hosts, Names, SecretNames, strings
from toolcelld.environments.requirements import RequirementsError, checked
from toolcelld.files.regular import NotRegularError, TooLargeError, read_regular
from toolcelld.inspector import answers
from toolcelld.inspector.process import InspectionError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

PROJECT_FILE: Final = os.path.join(".toolcell", "config.toml")
FILE_BYTES_MAX: Final = 64 * 1024
"""What a person writes about one project; a hundredth of it is usual."""
PROGRAMS_MAX: Final = 32


def _inside(path: str) -> str:
    """Return a path that is relative to the project and stays in it."""
    if "\0" in path or os.pathsep in path or os.path.isabs(path):
        raise ValueError("should be a path in the project, relative to it")
    normal = os.path.normpath(path)
    if normal == ".." or normal.startswith("../"):
        raise ValueError("should be a path in the project, without ..")
    return normal


def _packages(value: tuple[str, ...]) -> tuple[str, ...]:
    try:
        return checked(value)
    except RequirementsError as error:
        raise ValueError(f"has a fault: {error}") from None


class ProjectFile(Section):
    """What the tools of a project ask for, each in addition to what its file declares; every key is optional."""

    python: Annotated[str, AfterValidator(_inside)] | None = None
    programs: Annotated[
        tuple[Annotated[str, AfterValidator(_inside)], ...],
        BeforeValidator(strings("directories")),
        Field(max_length=PROGRAMS_MAX),
    ] = ()
    requires: Annotated[tuple[str, ...], BeforeValidator(strings("packages")), AfterValidator(_packages)] = ()
    env: Names = ()
    network: Hosts = False
    secrets: SecretNames = ()
    limits: LimitKeys = LimitKeys.default()
    """Of tools whose file declares no other."""
    permissions: Annotated[tuple[tuple[str, Stricter], ...], BeforeValidator(stricter_rules)] = ()
    """Only stricter than those of the user."""


ASKS_NOTHING: Final = ProjectFile.default()


def read(project: str) -> tuple[ProjectFile, bytes] | None:
    """Read the file of a project.

    Args:
        project: The directory that contains `.toolcell`.

    Returns:
        What it asks for, and the bytes; None where there is no file.

    Raises:
        ConfigError: The file cannot be used; the text names the file, each key and what to write.
    """
    path = os.path.join(project, PROJECT_FILE)
    try:
        if os.path.islink(path) or os.path.islink(os.path.dirname(path)):
            raise ConfigError(path, [Mistake("", "", "is a link, and links of a project are not followed")])
        raw = read_regular(path, FILE_BYTES_MAX)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
        raise ConfigError(path, [Mistake("", "", f"{error.strerror}; make it readable")]) from error
    except NotRegularError as error:
        raise ConfigError(path, [Mistake("", "", f"is {error}, not a file")]) from error
    except TooLargeError as error:
        raise ConfigError(
            path, [Mistake("", "", f"has more than {FILE_BYTES_MAX // 1024} KiB; shorten it")]
        ) from error
    return parse(path, raw), raw


def parse(path: str, raw: bytes) -> ProjectFile:
    """Parse the content of such a file; `path` is for messages. Raises `ConfigError`."""
    try:
        table = answers.toml(raw)
    except InspectionError as error:
        raise ConfigError(path, [Mistake("", "", str(error))]) from error
    try:
        return ProjectFile.model_validate(table)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        raise ConfigError(path, [_mistake(problem) for problem in problems]) from error


def _mistake(problem: ErrorDetails) -> Mistake:
    location = problem["loc"]
    depth = 2 if location[0] == "limits" else 1
    key = dotted(location[:depth])
    if location[0] == "enforce":
        return Mistake("enforce", "", f"belongs in {_paths.SYSTEM_CONFIG}, which root writes")
    if problem["type"] == "extra_forbidden":
        section = LimitKeys if depth == 2 and len(location) > 1 else ProjectFile
        known = [info.alias or name for name, info in section.model_fields.items()]
        near = difflib.get_close_matches(str(location[depth - 1])[:64], known, n=1)
        hint = f'; did you mean "{near[0]}"?' if near else f"; known here: {', '.join(known)}"
        return Mistake(key, "", f"unknown key{hint}")
    context = problem.get("ctx", {})
    text = str(context["error"]) if problem["type"] == "value_error" else str(problem["msg"])
    return Mistake(key, shown(problem["input"]), text.replace("Input should be", "should be"))
