"""Builds environments of packages with `uv`, outside of every call, and keeps them by content.

    requirements + Python + platform ─ uv pip compile ─▶ lock, with hashes ─ uv pip sync ─▶ environment

An environment is kept under the digest of its lock, so equal requirements share one, and an edit of requirements never
changes an environment that a worker uses. Cells see it read-only. uv links its files from a cache in the same directory.

uv runs outside of cells, so it gets nothing that a project can write: no project text but checked requirements, an
empty working directory, an explicit interpreter (it would run `.venv/bin/python` of the working directory), no
configuration but the user's own, and listed variables. Packages are wheels unless the user allows builds, as a build
runs the package's code; bytecode is compiled without `site`, which would run `.pth` files.
"""

from __future__ import annotations

import asyncio
import contextlib
import glob
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from urllib.parse import unquote

from toolcell._program_places import is_executable
from toolcelld.environments.interpreter import Interpreter, InterpreterError, find, own_program, own_versions
from toolcelld.environments.programs import Programs, programs_of
from toolcelld.environments.requirements import Requirements

FORMAT: Final = "1"
"""Part of every key; changed when environments are made in another way."""
BUILD_SECONDS_MAX: Final = 600.0
"""For one command of uv: large packages over a slow connection."""
MESSAGE_CHARACTERS_MAX: Final = 1500
COMPLETE: Final = ".toolcell-complete"
"""The file that is written last into an environment."""
INTERPRETERS: Final = (".local/share/uv/python/*/bin", ".pyenv/versions/*/bin")
"""Where uv and pyenv keep interpreters, in the home directory."""
MINOR_MAX: Final = 30
FOUND_MAX: Final = 1000
"""Environments that are remembered; each takes a kilobyte."""
VARIABLES: Final = (
    "HOME", "LANG", "LC_ALL", "XDG_CONFIG_HOME", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy",
    "https_proxy", "all_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "NETRC", "UV_DEFAULT_INDEX", "UV_INDEX",
    "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_INDEX_STRATEGY", "UV_FIND_LINKS", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS",
    "UV_OFFLINE", "UV_HTTP_TIMEOUT", "UV_KEYRING_PROVIDER",
)  # fmt: skip
"""What uv gets of the daemon's environment, besides UV_INDEX_…_USERNAME and UV_INDEX_…_PASSWORD."""
PASSWORD: Final = re.compile(r"://[^/@\s]*?:([^/@\s]+)@")
"""In the address of an index."""
_PINNED: Final = re.compile(r"^[^\s=#]+==(\S+)", re.MULTILINE)


class BuildError(Exception):
    """An environment cannot be built; the text says why and what to do."""


class Environments:
    """The environments in a state directory.

    Args:
        directory: Where they are kept, with uv's cache.
        environment: The daemon's environment.
        uv: Returns the path of uv from the configuration; empty for the one on PATH.
        source_builds: Returns whether packages without a wheel may be built.
    """

    def __init__(
        self,
        directory: str,
        environment: Mapping[str, str],
        *,
        uv: Callable[[], str] = lambda: "",
        source_builds: Callable[[], bool] = lambda: False,
    ) -> None:
        self._directory = directory
        self._environment = environment
        self._uv = uv
        self._source_builds = source_builds
        # Builds that are running, by key; shared by all that wait for them.
        self._running: dict[str, asyncio.Future[Interpreter]] = {}
        self._processes: set[subprocess.Popen[bytes]] = set()  # of these builds
        self._closing = False
        self._found: dict[Requirements, Interpreter] = {}  # environments that are there
        # One build at a time, apart from the threads that everything else needs.
        self._thread = ThreadPoolExecutor(1, "toolcell-environments")

    def built(self, requirements: Requirements) -> Interpreter | None:
        """Return the interpreter of an environment that is there already, or None."""
        found = self._found.get(requirements)
        if found is not None and _is_complete(found.prefix):
            return found
        found = self._recorded(requirements)
        if found is not None:
            if len(self._found) >= FOUND_MAX:
                self._found.clear()
            self._found[requirements] = found
        return found

    def _recorded(self, requirements: Requirements) -> Interpreter | None:
        try:
            with open(self._record(self._key(requirements)), encoding="utf-8") as file:
                name = json.load(file)["environment"]
            prefix = os.path.join(self._directory, "environments", os.path.basename(name))
            if not _is_complete(prefix):
                return None
            return find(os.path.join(prefix, "bin", "python"), self._environment.get("HOME", "/"))
        except (OSError, ValueError, KeyError, TypeError, InterpreterError):
            return None

    async def get(self, requirements: Requirements, avoid: Sequence[str] = ()) -> Interpreter:
        """Return the interpreter of the environment with these packages; build it first if it is not there.

        A build continues when the caller is cancelled, as others may wait for it; `aclose` ends it.

        Args:
            requirements: What it has.
            avoid: Directories of projects: neither uv nor an interpreter is taken from there.

        Raises:
            BuildError: It cannot be built.
        """
        if (found := self.built(requirements)) is not None:
            return found
        key = self._key(requirements)
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.get_running_loop().run_in_executor(
                self._thread, self._build, key, requirements, avoid
            )
            task.add_done_callback(lambda done: self._forget(key, done))
        return await asyncio.shield(task)

    async def newest(self, package: str, avoid: Sequence[str] = ()) -> str:
        """Return the newest version of a package that can be installed here, as its index says now.

        Args:
            package: Its name.
            avoid: As in `get`.

        Raises:
            BuildError: The index cannot be asked, or has none.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._newest, package, avoid)

    async def tidy(self) -> None:
        """Remove what is of no use after environments were removed: their records, and uv's cache, which has their files.

        The files of the others stay, as they are linked.
        """
        await asyncio.get_running_loop().run_in_executor(self._thread, self._remove_cache)

    async def aclose(self) -> None:
        """End the builds that run, and wait until uv has ended."""
        self._closing = True
        for process in list(self._processes):
            _kill(process)
        if self._running:
            await asyncio.wait(list(self._running.values()))
        self._thread.shutdown()

    def _forget(self, key: str, task: asyncio.Future[Interpreter]) -> None:
        self._running.pop(key, None)
        if not task.cancelled():
            task.exception()  # it was raised to all that waited

    def _key(self, requirements: Requirements) -> str:
        loaded = sorted(own_versions().items())
        facts = [
            FORMAT,
            requirements.packages,
            requirements.python,
            own_program(),
            sys.version,
            platform.platform(),
            loaded,
        ]
        return hashlib.blake2b(json.dumps(facts).encode(), digest_size=16).hexdigest()

    def _record(self, key: str) -> str:
        return os.path.join(self._directory, "requests", f"{key}.json")

    def _remove_cache(self) -> None:
        for record in glob.glob(os.path.join(self._directory, "requests", "*.json")):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                with open(record, encoding="utf-8") as file:
                    name = os.path.basename(json.load(file)["environment"])
                if not _is_complete(os.path.join(self._directory, "environments", name)):
                    os.unlink(record)
        shutil.rmtree(os.path.join(self._directory, "cache"), ignore_errors=True)

    def _build(self, key: str, requirements: Requirements, avoid: Sequence[str]) -> Interpreter:
        uv = self._program(requirements, avoid)
        path = self._programs().usable_path(avoid)
        work = os.path.join(self._directory, "work", key)
        try:
            for place in ("cache", "environments", "requests", "work"):
                os.makedirs(os.path.join(self._directory, place), mode=0o700, exist_ok=True)
            shutil.rmtree(work, ignore_errors=True)
            os.makedirs(os.path.join(work, "empty"))
            return self._build_in(work, uv, path, key, requirements)
        except OSError as error:
            raise BuildError(f"the environment cannot be built: {error}") from error
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _newest(self, package: str, avoid: Sequence[str]) -> str:
        uv = self._program(Requirements((package,)), avoid)
        work = os.path.join(self._directory, "work", "newest")
        try:
            shutil.rmtree(work, ignore_errors=True)
            os.makedirs(os.path.join(work, "empty"), mode=0o700)
            source = os.path.join(work, "requirements.in")
            _write(source, [package])
            command = [
                uv, "pip", "compile", "--quiet", "--no-deps", "--no-header", "--no-annotate", "--no-cache", *self._wheels(),
                "--python", own_program(), source,
            ]  # fmt: skip
            printed = self._run(work, command)
        except OSError as error:
            raise BuildError(f"uv cannot be asked for its newest version: {error}") from error
        finally:
            shutil.rmtree(work, ignore_errors=True)
        if (found := _PINNED.search(printed)) is None:
            raise BuildError(f"uv names no version of {package}")
        return found[1]

    def _build_in(self, work: str, uv: str, path: str, key: str, requirements: Requirements) -> Interpreter:
        python = self._base(requirements, path)
        lock = os.path.join(work, "lock.txt")
        self._compile(work, uv, python, requirements, lock)
        name = _name_of(lock, python)
        prefix = os.path.join(self._directory, "environments", name)
        if not _is_complete(prefix):
            shutil.rmtree(prefix, ignore_errors=True)
            self._run(work, [uv, "venv", "--no-project", "--python", python, prefix])
            executable = os.path.join(prefix, "bin", "python")
            install = ["pip", "sync", *self._wheels(), "--require-hashes", "--python", executable, lock]
            self._run(work, [uv, *install])
            # Cells cannot write it. Without site (-S) no code of the packages runs.
            library = os.path.join(prefix, "lib")
            self._run(work, [python, "-I", "-S", "-m", "compileall", "-q", "-j", "0", library], failing=True)
            _write(os.path.join(prefix, COMPLETE), ())
        self._keep(key, name, requirements)
        found = self.built(requirements)
        if found is None:
            raise BuildError("the environment that uv has made cannot be used")
        return found

    def _keep(self, key: str, name: str, requirements: Requirements) -> None:
        """Record which environment requirements have come to."""
        record = self._record(key)
        _write(f"{record}.new", [json.dumps({"environment": name, "packages": requirements.packages})])
        os.replace(f"{record}.new", record)

    def _programs(self) -> Programs:
        return programs_of(self._environment.get("PATH", os.defpath), os.path.expanduser("~"))

    def _program(self, requirements: Requirements, avoid: Sequence[str]) -> str:
        found = self._programs().find("uv", avoid=avoid)
        uv = self._uv() or (found.place if found is not None else "")
        if uv and is_executable(uv):
            return uv
        others = "".join(f"\n  {line}" for line in self._programs().passed_over("uv", avoid=avoid))
        names = ", ".join(requirements.packages[:5]) or f"Python {requirements.python}"
        where = f"{uv} cannot be executed" if uv else "it is not on PATH, or only where it is not used from"
        raise BuildError(
            f"it asks for packages ({names}), which uv installs, and {where}.{others}\n"
            "  To install it: pip install uv   or name it: toolcell config set environments.uv /path/to/uv"
        )

    def _base(self, requirements: Requirements, path: str) -> str:
        """Return the interpreter to make the environment of: Toolcell's own, if the requirements allow it."""
        from packaging.specifiers import SpecifierSet

        wanted = SpecifierSet(requirements.python)
        if wanted.contains(".".join(map(str, sys.version_info[:3]))):
            return own_program()
        home = self._environment.get("HOME", "/")
        places = [
            *path.split(os.pathsep),
            *(found for pattern in INTERPRETERS for found in glob.glob(f"{home}/{pattern}")),
        ]
        for minor in range(MINOR_MAX, 10, -1):
            # Which third part it has is not known without running it.
            if not wanted.contains(f"3.{minor}.99"):
                continue
            for place in places:
                with contextlib.suppress(InterpreterError):
                    # A shim that starts another program is none.
                    return os.path.realpath(find(os.path.join(place, f"python3.{minor}"), home).executable)
        raise BuildError(
            f"it asks for Python {requirements.python}, and there is none on PATH.\n  To install one: uv python install"
        )

    def _compile(self, work: str, uv: str, python: str, requirements: Requirements, lock: str) -> None:
        """Resolve the requirements: with the versions that a worker has loaded, else without."""
        source, pins = os.path.join(work, "requirements.in"), os.path.join(work, "constraints.txt")
        own = own_versions()
        packages = list(requirements.packages)
        if python != own_program():
            # A worker that executes another interpreter takes it from there
            packages.append("pydantic>=2.10")
        _write(source, packages)
        _write(pins, [f"{name}=={version}" for name, version in own.items()])
        command = [
            uv, "pip", "compile", "--quiet", "--generate-hashes", "--no-header", "--no-annotate", *self._wheels(),
            "--python", python, "--output-file", lock, source,
        ]  # fmt: skip
        try:
            self._run(work, [*command, "--constraints", pins])
        except BuildError:
            if "pydantic>=2.10" not in packages:
                _write(source, [*packages, "pydantic>=2.10"])
            self._run(work, command)

    def _wheels(self) -> Sequence[str]:
        return () if self._source_builds() else ("--only-binary", ":all:")

    def _run(self, work: str, command: Sequence[str], *, failing: bool = False) -> str:
        """Run a command in the empty directory; return what it printed. Raises `BuildError`."""
        if self._closing:
            raise BuildError("the daemon is stopping")
        # Not asyncio's own, which forks with the handlers of gRPC's threads.
        process = subprocess.Popen(
            command,
            cwd=os.path.join(work, "empty"),
            env=self._variables(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._processes.add(process)
        try:
            output, errors = process.communicate(timeout=BUILD_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise BuildError(f"uv had not ended after {BUILD_SECONDS_MAX:.0f} s") from None
        finally:
            self._processes.discard(process)
            if process.returncode is None:  # not reaped, so the number of its group is its own
                _kill(process)
                process.communicate()
        if process.returncode and not failing:
            text = errors.decode(errors="replace").strip()[-MESSAGE_CHARACTERS_MAX:]
            hint = (
                ""
                if self._source_builds()
                else "\n  Only wheels are installed; [environments] source_builds = true allows builds."
            )
            words = " ".join(command[1:3])
            text = self._redacted(text) or f"uv {words}: exit status {process.returncode}"
            raise BuildError(f"uv cannot install what it asks for:\n{text}{hint}")
        return output.decode(errors="replace")

    def _redacted(self, text: str) -> str:
        """Return what uv has printed without passwords of indexes, which it leaves out itself as far as it knows them."""
        for name, value in self._variables().items():
            found = [value] if name.endswith("_PASSWORD") else PASSWORD.findall(value)
            for password in sorted({*found, *map(unquote, found)} - {""}, key=len, reverse=True):
                text = text.replace(password, "****")
        return text

    def _variables(self) -> dict[str, str]:
        given = self._environment
        variables = {
            name: value for name, value in given.items()
            if name in VARIABLES or (name.startswith("UV_INDEX_") and name.endswith(("_USERNAME", "_PASSWORD")))
        }  # fmt: skip
        for ours, theirs in (
            ("PIP_INDEX_URL", "UV_DEFAULT_INDEX"),
            ("PIP_EXTRA_INDEX_URL", "UV_EXTRA_INDEX_URL"),
        ):
            if ours in given and theirs not in variables and "UV_INDEX_URL" not in variables:
                variables[theirs] = given[ours]
        settings = given.get("XDG_CONFIG_HOME") or os.path.join(given.get("HOME", "/"), ".config")
        if os.path.isfile(own := os.path.join(settings, "uv", "uv.toml")):
            variables["UV_CONFIG_FILE"] = own
        else:
            variables["UV_NO_CONFIG"] = "1"
        return variables | {
            "PATH": self._programs().usable_path(),  # uv starts git and keyring
            "UV_CACHE_DIR": os.path.join(self._directory, "cache"),
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_NO_PROGRESS": "1",
        }


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _name_of(lock: str, python: str) -> str:
    """Return the name of the environment that a lock, an interpreter and this machine come to."""
    with open(lock, "rb") as file:
        digest = hashlib.blake2b(file.read(), digest_size=16)
    digest.update(f"{FORMAT}\0{python}\0{platform.platform()}".encode())
    return digest.hexdigest()


def _is_complete(prefix: str) -> bool:
    return os.path.exists(os.path.join(prefix, COMPLETE))


def _write(path: str, lines: Sequence[str]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
