"""Decides which interpreter and packages the cell of a file has.

    an environment with the packages that the file or its project asks for (PEP 723, `requires`), else
    the source's `python`, else
    for a trusted project, the environment at its root: `.venv`, else `venv`, else
    Toolcell's own interpreter

For a trusted project, and the user's own files, an engine also gets the packages that `toolcell prepare` has installed.
A file of an untrusted project has Toolcell's own. The environment is looked for beside the directory that holds the
tools, then at the root of the worktree.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Final

from toolcell._paths import is_below
from toolcelld.catalog.discovery.sources import ToolFile, project_directory
from toolcelld.catalog.hooks import SOURCE as HOOKS
from toolcelld.config.remedies import set_command
from toolcelld.environments.interpreter import Interpreter, InterpreterError, environment_in, find
from toolcelld.environments.packages import (
    INSTALLED,
    MANIFEST,
    Opened,
    declares,
    installed,
    manifest_above,
)
from toolcelld.environments.requirements import (
    NO_REQUIREMENTS,
    Requirements,
    RequirementsError,
    in_file,
)
from toolcelld.errors import Refusal, RefusalReason
from toolcelld.files.paths import open_plain
from toolcelld.policy.decisions.consent import Consent

_PROJECT = "project"
DISTRIBUTIONS: Final = {
    "agents": "openai-agents",
    "bs4": "beautifulsoup4",
    "Crypto": "pycryptodome",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "discord": "discord.py",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "fitz": "pymupdf",
    "git": "GitPython",
    "github": "PyGithub",
    "gitlab": "python-gitlab",
    "googleapiclient": "google-api-python-client",
    "jose": "python-jose",
    "jwt": "PyJWT",
    "magic": "python-magic",
    "MySQLdb": "mysqlclient",
    "mysql": "mysql-connector-python",
    "nacl": "PyNaCl",
    "OpenSSL": "pyOpenSSL",
    "PIL": "pillow",
    "pptx": "python-pptx",
    "psycopg2": "psycopg2-binary",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "slugify": "python-slugify",
    "strands": "strands-agents",
    "telegram": "python-telegram-bot",
    "wikipediaapi": "Wikipedia-API",
    "win32com": "pywin32",
    "yaml": "PyYAML",
    "zmq": "pyzmq",
}
"""Packages by the modules that they have under another name: that of the module is often another package's."""


def interpreter_of(
    file: ToolFile, home: str, *, root: str = "", trusted: bool, packages: str = ""
) -> Interpreter | None:
    """Return the interpreter for the cells of a file; None is Toolcell's own.

    Args:
        file: The file.
        home: The user's home directory.
        root: The root of its project; empty, the default, for the directory that holds the tools' directory.
        trusted: Whether the file is the user's, or its project is trusted.
        packages: Where packages of scripts are kept; empty, the default, for nowhere.

    Raises:
        Refusal: The interpreter that its source names cannot be used.
    """
    if (engine := file.engine) is not None:  # the user's own, also for a file of an untrusted project
        program = engine.program
        place = _packages_of(file, home, root, packages) if trusted else ""
        beside = _packages_beside(file, home)
        readable = (program, *beside, *((place,) if place else ()))
        # Those beside the file, too: Bun lists the directories above, which a cell of baseline cannot.
        libraries = [path for path in beside if os.path.basename(path) == INSTALLED]
        libraries += [os.path.join(place, INSTALLED)] if place else []
        return Interpreter(program, "", tuple(libraries), "", program, readable, engine.state, engine.name)
    if not trusted:
        return None
    if file.python is not None:
        try:
            return find(file.python, home)
        except InterpreterError as error:
            raise Refusal(RefusalReason.BROKEN_TOOL, f"[source.{file.source}] python: {error}") from error
    executable = _found_by_itself(file, root)
    try:
        return find(executable, home) if executable is not None else None
    except InterpreterError:
        return None  # a tool may not need it; the error of an import names it


def manifest_of(file: ToolFile, home: str, root: str = "") -> str:
    """Return the directory whose `package.json` says what a file in TypeScript or JavaScript imports; empty if there is none.

    Args:
        file: The file.
        home: The user's home directory.
        root: As in `interpreter_of`.
    """
    if file.source == _PROJECT:
        return manifest_above(file.directory, root or project_directory(file))
    found = manifest_above(file.directory, "/")
    return "" if is_below(home, found or "/") else found


def opened_of(file: ToolFile) -> Opened:
    """Return how files beside a tool file are opened: of a project, which comes with links of its author's, without any."""
    return open_plain if file.source == _PROJECT else os.open


def _packages_of(file: ToolFile, home: str, root: str, packages: str) -> str:
    """Return the directory with the packages that were installed for a file; empty if there is none."""
    if not packages or not os.path.isdir(packages) or not (directory := manifest_of(file, home, root)):
        return ""
    return installed(packages, directory, opened_of(file))


def _packages_beside(file: ToolFile, home: str) -> tuple[str, ...]:
    """Return the directories of packages that an engine looks in, upwards to the home directory.

    A project is readable as a whole, and its author could make a link of this name to anywhere.
    """
    if file.source == _PROJECT:
        return ()
    places: list[str] = []
    above = file.directory
    while above not in ("/", home):
        places += [os.path.join(above, "node_modules"), os.path.join(above, "package.json")]
        above = os.path.dirname(above)
    return tuple(place for place in places if os.path.exists(place))


def _found_by_itself(file: ToolFile, root: str = "") -> str | None:
    """Return the interpreter of the environment of a file's project, or None."""
    if file.source != _PROJECT:
        return None
    project = project_directory(file)
    for directory in dict.fromkeys((project, root or project)):
        if (executable := environment_in(directory)) is not None:
            return executable
    return None


def requirements_of(file: ToolFile, *, trusted: bool) -> Requirements:
    """Return the packages that a file and its project ask for; none for an untrusted project.

    Raises:
        Refusal: The file's script block cannot be used.
    """
    if not trusted or file.engine is not None:
        return NO_REQUIREMENTS
    try:
        return in_file(file.content).beside(file.requires)
    except RequirementsError as error:
        raise Refusal(RefusalReason.BROKEN_TOOL, str(error)) from error


def environment_of(file: ToolFile, root: str, *, found: bool) -> Iterator[str]:
    """Yield what a file gets of interpreters, programs and packages once it is trusted, as a person reads it. Blocks.

    Args:
        file: The file.
        root: As in `interpreter_of`.
        found: Whether what nothing asks for counts, too: an environment that lies in the project.
    """
    if file.engine is None:
        if packages := sorted({*_packages_in(file), *file.requires}):
            yield f"the packages {', '.join(packages)}"
        elif file.python is not None:
            yield f"the interpreter {file.python}"
        elif found and (executable := _found_by_itself(file, root)) is not None:
            yield f"the environment {os.path.dirname(os.path.dirname(executable))}"
    if file.programs:
        yield f"the programs of {', '.join(file.programs)}"


def _packages_in(file: ToolFile) -> tuple[str, ...]:
    """Return what the script block of a file asks for; nothing of one that cannot be used."""
    try:
        return in_file(file.content).packages
    except RequirementsError:
        return ()


def missing_module(
    file: ToolFile, module: str, interpreter: Interpreter | None, home: str, *, consent: Consent
) -> str:
    """Return how to get a module that a file could not import, and which interpreter was asked for it.

    Args:
        file: The file.
        module: The name of the module.
        interpreter: What the cell had.
        home: The user's home directory.
        consent: How the file stands with the trust in its project, with what it lacks for it.
    """
    if file.engine is not None:
        return _missing_package(file, module, home, consent)
    package, certainty = module.partition(".")[0], ", which may differ from the module's"
    another = ""
    if file.source != HOOKS:  # which have no settings of a source
        command = set_command(("source", file.source, "python"), "/path/of/its/bin/python")
        another = f"\nOr name an environment: {command}"
    if package in sys.stdlib_module_names:  # a module in one that is there is nothing that could be installed
        lacking = interpreter.executable if interpreter is not None else "Toolcell's own Python"
        part = f"{module} is a part of Python that {lacking} was installed without; install it for that Python.{another}"
        return "" if module != package else part
    if package in DISTRIBUTIONS:
        package, certainty = DISTRIBUTIONS[package], ""
    if interpreter is not None:
        return (
            f"It ran with {interpreter.executable}. To install it there: "
            f"uv pip install --python {interpreter.executable} {package}"
        )
    if consent.held:
        return f"It ran with Toolcell's own Python. {consent}"
    own = _packages_in(file)
    if own:
        return (
            f"It ran with {', '.join(own)}. To have another package, name it in the file's script block{certainty}:\n"
            f"  # dependencies = [{', '.join(json.dumps(each) for each in (*own, package))}]"
        )
    executable = _found_by_itself(file)
    if executable is not None:
        try:
            find(executable, home)
        except InterpreterError as error:
            return f"It ran with Toolcell's own Python, as the project's cannot be used: {error}"
    ran = f"with {', '.join(file.requires)}" if file.requires else "with Toolcell's own Python"
    trust = f"Then trust the project: {consent.command}\n" if consent.why else ""
    return (
        f"It ran {ran}. To have the package installed, begin the file with the package's name"
        f"{certainty}:\n"
        f'  # /// script\n  # dependencies = ["{package}"]\n  # ///\n{trust}'.rstrip()
        + another
    )


def _missing_package(file: ToolFile, module: str, home: str, consent: Consent) -> str:
    """Return how to get a package that a file in TypeScript or JavaScript imports."""
    parts = module.split("/")
    package = "/".join(parts[: 2 if module.startswith("@") else 1])
    directory = manifest_of(file, home, _topmost(file.directory, home)) or file.directory
    cause = f"{package} is not installed; nothing is installed during a call."
    if not declares(directory, package, opened_of(file)):
        return (
            f"{cause} To install it in {directory}:\n"
            f"  bun add --ignore-scripts {package}   or   npm install --ignore-scripts {package}"
        )
    project = f" {project_directory(file)}" if file.source == _PROJECT else ""
    trust = f"{consent.command}   and then   " if consent.why else ""
    return f"{cause} To install what {directory}/{MANIFEST} asks for:\n  {trust}toolcell prepare{project}"


def _topmost(directory: str, home: str) -> str:
    """Return the directory above one that is the first below the home directory, or below the root."""
    top = home if is_below(directory, home) and directory != home else "/"
    return os.path.join(top, os.path.relpath(directory, top).split(os.sep)[0])
