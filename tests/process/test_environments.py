"""Environments of a project: code that a tool plants there must not run outside of a cell.

The start-up files of an environment (`.pth`, `sitecustomize`) and its packages are code that every tool of the project
could have written. A mark in a directory that no cell can write shows that such code ran outside.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.server
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import sysconfig
import threading
import zipfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote

import pytest
from tests.daemons import RunningDaemon

from toolcell_proto.v1 import operator_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.sampled("profile")]

PLANT: Final = """
import glob, os, shutil, signal
from toolcell import tool

signal.alarm(20)

@tool
def plant(line: str) -> str:
    "Plant start-up code in the project's environment, or in a copy that takes its place."
    shutil.copytree("deep", "copy", symlinks=True)
    for packages in glob.glob("copy/env/lib/python*/site-packages"):
        open(f"{packages}/planted.pth", "w").write(line + "\\n")
    os.rename("deep", "moved")
    os.rename("copy", "deep")
    return "planted"

@tool
def other() -> str:
    "Do nothing."
    return "ok"
"""
CONFIG: Final = """
trust = "all"

[defaults]
sandbox = "{profile}"
isolation = "call"

[source.project]
python = "{project}/deep/env/bin/python"
"""
SETTLE_SECONDS: Final = 40


def make_environment(directory: Path, *, python: str = sys.executable) -> None:
    """An environment with the packages that a worker needs, taken from the one of the tests by a `.pth`."""
    subprocess.run([python, "-m", "venv", "--without-pip", directory], check=True)
    packages = next(directory.glob("lib/python*/site-packages"))
    (packages / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")


PROFILES: Final = ("none", "baseline", "strict")
LOOK: Final = """
import os, shutil, subprocess, sys
import theirs
from toolcell import tool

@tool
def look(programs: bool = True) -> dict[str, object]:
    "Tell what this interpreter is."
    import pydantic
    ran = None
    if programs:
        words = [sys.executable, "-c", "import sys, theirs; print(sys.prefix, theirs.NAME)"]
        ran = subprocess.run(words, capture_output=True, text=True).stdout.strip()
    else:
        try:
            os.execv("/bin/true", ["true"])
        except OSError as error:
            ran = type(error).__name__
    return {
        "executable": sys.executable, "prefix": sys.prefix, "theirs": theirs.__file__, "ran": ran,
        "environment": os.environ.get("VIRTUAL_ENV"), "program": shutil.which("python"),
        "started": getattr(sys, "started_in", None), "pid": os.getpid(),
        "writes": os.access(theirs.__file__, os.W_OK), "own": sys.argv[0].endswith("__main__.py"),
        "executed": "cell" in sys.orig_argv,
    }
"""


def add_package(environment: Path, name: str, text: str) -> None:
    """Add a module to an environment."""
    packages = next(environment.glob("lib/python*/site-packages"))
    (packages / f"{name}.py").write_text(text)


def make_unfit(environment: Path) -> None:
    """Have an environment name another version of a package that every worker has loaded."""
    packages = next(environment.glob("lib/python*/site-packages"))
    (packages / "pydantic-0.0.1.dist-info").mkdir()


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("fits", [True, False])
async def test_a_trusted_project_has_the_packages_and_programs_of_its_environment(
    fits: bool, profile: str, daemon: RunningDaemon
) -> None:
    environment = daemon.project / ".venv"
    make_environment(environment)
    add_package(environment, "theirs", "NAME = 'theirs'\n")
    add_package(environment, "a_start", "")
    packages = next(environment.glob("lib/python*/site-packages"))
    (packages / "a.pth").write_text("import sys, os; sys.started_in = os.getpid()\n")
    if not fits:
        make_unfit(environment)
    daemon.config.write_text(f'trust = "all"\n[defaults]\nsandbox = "{profile}"\n')
    daemon.reload()
    daemon.tool("look", LOOK)
    async with daemon.connect() as session:
        found = json.loads((await session.call("look", {})).text)
    executable = str(environment / "bin" / "python")
    assert found["executable"] == found["program"] == executable
    assert found["prefix"] == found["environment"] == str(environment)
    assert found["theirs"] == str(packages / "theirs.py")
    assert found["ran"] == f"{environment} theirs"
    assert found["started"] == found["pid"], "the start-up code ran in another process than the worker"
    assert found["executed"] is not fits


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["baseline", "strict"])
@pytest.mark.parametrize("fits", [True, False])
async def test_an_environment_starts_no_program_where_programs_are_not_granted(
    fits: bool, profile: str, daemon: RunningDaemon
) -> None:
    environment = daemon.project / ".venv"
    make_environment(environment)
    add_package(environment, "theirs", "NAME = 'theirs'\n")
    packages = next(environment.glob("lib/python*/site-packages"))
    tried = "import os, sys; exec('try: os.execv(chr(47) + \\'bin/true\\', [\\'true\\'])\\nexcept OSError: pass')\n"
    (packages / "a.pth").write_text(tried)
    if not fits:
        make_unfit(environment)
    daemon.config.write_text(
        f'trust = "all"\n[defaults]\nsandbox = "still"\n[profile.still]\nbase = "{profile}"\nprograms = false\n'
    )
    daemon.reload()
    daemon.tool("look", LOOK)
    async with daemon.connect() as session:
        found = json.loads((await session.call("look", {"programs": False})).text)
    assert found["ran"] == "PermissionError"
    assert found["executed"] is not fits


@pytest.mark.slow
@pytest.mark.parametrize("programs", [True, False])
@pytest.mark.parametrize("profile", ["baseline", "strict"])
async def test_an_interpreter_that_the_project_brings_starts_no_program_where_programs_are_not_granted(
    profile: str, programs: bool, daemon: RunningDaemon
) -> None:
    version = f"python3.{sys.version_info.minor}"
    base, environment = daemon.project / "base", daemon.project / ".venv"
    for directory in (base / "bin", base / "lib" / version / "encodings", environment / "bin"):
        directory.mkdir(parents=True)
    shutil.copy(os.path.realpath(sys.executable), base / "bin" / version)
    (base / "lib" / version / "os.py").touch()
    # The first module that an interpreter reads from a file, before any code of ours.
    (base / "lib" / version / "encodings" / "__init__.py").write_text(
        "import posix\nposix.execv('/bin/sh', ['sh', '-c', 'exit 42'])\n"
    )
    (environment / "pyvenv.cfg").touch()
    (environment / "bin" / "python").symlink_to(base / "bin" / version)
    daemon.config.write_text(
        f'trust = "all"\n[defaults]\nsandbox = "still"\n[profile.still]\nbase = "{profile}"\n'
        f"programs = {str(programs).lower()}\n"
    )
    daemon.reload()
    daemon.tool("look", LOOK)
    async with daemon.connect() as session:
        outcome = await session.call("look", {})
    assert outcome.kind.value == "refused"
    assert ("exited with status 42" in str(outcome.message)) is programs, outcome.message


async def test_the_environment_of_an_untrusted_project_is_not_used_and_the_error_says_how_to_trust_it(
    daemon: RunningDaemon,
) -> None:
    environment = daemon.project / ".venv"
    make_environment(environment)
    add_package(environment, "theirs", "NAME = 'theirs'\n")
    daemon.config.write_text("")
    daemon.reload()
    daemon.tool("look", LOOK)
    async with daemon.connect() as session:
        outcome = await session.call("look", {})
    assert outcome.kind.value == "refused"
    assert f"toolcell trust {daemon.project}" in str(outcome.message), outcome.message


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["baseline", "strict"])
async def test_code_planted_in_an_environment_never_runs_outside_of_a_cell(
    profile: Literal["baseline", "strict"], make_daemon: Callable[..., RunningDaemon]
) -> None:
    daemon = make_daemon()
    daemon.config.write_text(CONFIG.format(profile=profile, project=daemon.project))
    make_environment(daemon.project / "deep" / "env")
    mark = daemon.directory / "ran-outside"
    line = f"import os; open({str(mark)!r}, 'w').write(str(os.getpid()))"
    daemon.start()
    daemon.tool("plant", PLANT)
    async with daemon.connect() as session:
        outcome = await session.call("plant", {"line": line})
        assert outcome.kind.value in ("ok", "tool_error"), outcome
    daemon.stop()
    if outcome.facts.moved_aside:  # Landlock cannot hold the places; what took one was renamed after the call
        assert not (daemon.project / "deep" / "env" / "bin").exists()
        (daemon.project / "deep" / "env.moved-aside").rename(daemon.project / "deep" / "env")
    daemon.start()
    async with asyncio.timeout(SETTLE_SECONDS), daemon.connect() as session:
        outcome = await session.call("plant_other", {})
    assert not os.path.lexists(mark), f"planted code ran outside of a cell; the call: {outcome}"


UV: Final = str(Path(sys.executable).parent / "uv")
SCRIPT: Final = """
# /// script
# dependencies = ["{package}"]
# ///
import {package}
from toolcell import tool

@tool
def place() -> str:
    "Say where the package is."
    return {package}.__file__
"""


def make_wheel(directory: Path, name: str, files: dict[str, str], version: str = "1.0") -> None:
    """A package as uv installs it; files of `.dist-info` are named by that directory alone."""
    directory.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    files = {path.replace(".dist-info/", f"{info}/", 1): text for path, text in files.items()}
    metadata = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    everything = {**files, **metadata}
    record = "".join(f"{path},,\n" for path in (*everything, f"{info}/RECORD"))
    with zipfile.ZipFile(directory / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in {**everything, f"{info}/RECORD": record}.items():
            wheel.writestr(path, text)


@pytest.fixture
def packages(make_daemon: Callable[..., RunningDaemon], tmp_path: Path) -> Iterator[RunningDaemon]:
    """A daemon whose index is a directory of wheels: `mark` leaves a mark when its start-up code runs."""
    wheels = tmp_path / "wheels"
    daemon = make_daemon(environment={"UV_FIND_LINKS": str(wheels), "UV_OFFLINE": "1"})
    mark = daemon.directory / "ran-outside"
    start = f"import contextlib, os; exec(\"with contextlib.suppress(OSError): open({str(mark)!r}, 'w')\")\n"
    make_wheel(wheels, "mark", {"mark.py": "", "mark.pth": start})
    daemon.config.write_text(f'trust = "all"\n[environments]\nuv = "{UV}"\n')
    daemon.start()
    yield daemon
    shutil.rmtree(daemon.state / "environments", ignore_errors=True)


@pytest.mark.slow
async def test_the_packages_of_a_script_block_are_installed_before_the_call_and_the_wait_is_told(
    packages: RunningDaemon,
) -> None:
    go, uv = packages.directory / "go", packages.directory / "uv"
    uv.write_text(f'#!/bin/sh\nuntil [ -e {go} ]; do sleep 0.02; done\nexec {UV} "$@"\n')
    uv.chmod(0o755)
    packages.config.write_text(f'trust = "all"\n[environments]\nuv = "{uv}"\n[daemon]\nopen_wait = "500ms"\n')
    packages.reload()
    packages.tool("place", SCRIPT.format(package="mark"))
    told: list[str] = []
    async with packages.connect() as session:
        call = session.call("place", {})
        async for event in call:
            told.append(repr(event))
            go.touch()
        outcome = await call
    assert outcome.kind.value == "ok", outcome
    assert outcome.text.startswith(str(packages.state / "environments"))
    assert any("installing packages for place: mark" in event for event in told), told
    assert not os.path.lexists(packages.directory / "ran-outside"), "a package's start-up code ran outside"


@pytest.mark.slow
async def test_a_second_tool_with_the_same_packages_shares_their_environment(packages: RunningDaemon) -> None:
    packages.tool("place", SCRIPT.format(package="mark"))
    packages.tool("again", SCRIPT.format(package="mark").replace("def place", "def again"))
    async with packages.connect() as session:
        first, second = (await session.call("place", {})).text, (await session.call("again", {})).text
    assert first == second
    assert len(os.listdir(packages.state / "environments" / "environments")) == 1


@pytest.mark.slow
async def test_a_package_that_is_not_there_is_reported_with_the_words_of_uv(packages: RunningDaemon) -> None:
    packages.tool("place", SCRIPT.format(package="missing"))
    async with packages.connect() as session:
        outcome = await session.call("place", {})
    assert (outcome.kind.value, outcome.cause) == ("refused", "broken_tool")
    assert "uv cannot install" in outcome.message
    assert "missing" in outcome.message


@pytest.mark.slow
async def test_prepare_builds_the_environment_before_the_first_call_and_tells_what_fails(
    packages: RunningDaemon,
) -> None:
    place = packages.tool("place", SCRIPT.format(package="mark"))
    other = packages.tool("other", SCRIPT.format(package="missing"))

    async def prepared() -> list[tuple[str, str, str]]:
        request = operator_pb2.PrepareRequest(directory=str(packages.project))
        async with packages.operate() as client:
            answers = client.watch(client.operator.Prepare, request)
            return [(it.path, it.state, it.message) async for it in answers]

    told = {(path, state): message for path, state, message in await prepared()}
    assert set(told) == {
        (str(place), "installing"), (str(place), "installed"), (str(other), "installing"), (str(other), "failed"),
    }  # fmt: skip
    assert told[str(place), "installed"] == "mark, by uv"
    assert "uv cannot install" in told[str(other), "failed"]
    assert (str(place), "present", "mark, by uv") in await prepared()
    async with packages.connect() as session:
        outcome = await session.call("place", {})
    assert outcome.kind.value == "ok", outcome
    assert not os.path.lexists(packages.directory / "ran-outside")


@pytest.mark.slow
async def test_uv_and_interpreters_of_the_project_are_never_run(packages: RunningDaemon) -> None:
    """A `uv` in the project's environment, and an interpreter that uv would find in the working directory."""
    programs = packages.project / ".venv" / "bin"
    mark = packages.directory / "ran-outside"
    make_environment(packages.project / ".venv")
    for name in ("uv", "python3.99"):
        (programs / name).write_text(f"#!/bin/sh\ntouch {mark}\n")
        (programs / name).chmod(0o755)
    packages.stop()
    packages.environment["PATH"] = f"{programs}:{Path(UV).parent}:{os.environ['PATH']}"
    packages.config.write_text('trust = "all"\n')
    packages.start()
    packages.tool("place", SCRIPT.format(package="mark"))
    async with packages.connect() as session:
        outcome = await session.call("place", {})
    assert outcome.kind.value == "ok", outcome
    assert not os.path.lexists(mark)


@pytest.mark.slow
async def test_without_uv_the_error_says_how_to_install_it(packages: RunningDaemon) -> None:
    packages.config.write_text('trust = "all"\n[environments]\nuv = "/nowhere/uv"\n')
    packages.reload()
    packages.tool("place", SCRIPT.format(package="mark"))
    async with packages.connect() as session:
        outcome = await session.call("place", {})
    assert outcome.kind.value == "refused"
    assert "pip install uv" in outcome.message


@pytest.mark.slow
async def test_an_untrusted_project_has_no_packages_installed(packages: RunningDaemon) -> None:
    packages.config.write_text(f'[environments]\nuv = "{UV}"\n')
    packages.reload()
    packages.tool("place", SCRIPT.format(package="mark"))
    async with packages.connect() as session:
        outcome = await session.call("place", {})
    assert outcome.kind.value == "refused"
    assert f"toolcell trust {packages.project}" in outcome.message
    assert not (packages.state / "environments").exists()


@pytest.mark.slow
async def test_a_tool_that_was_not_shown_when_its_project_was_trusted_says_how_it_gets_its_packages(
    packages: RunningDaemon,
) -> None:
    """It could not be described then, for want of uv; with uv it is described, but nothing was granted for it."""
    packages.config.write_text('[environments]\nuv = "/nowhere/uv"\n')
    packages.reload()
    packages.tool("place", SCRIPT.format(package="mark"))

    async def trusted() -> None:
        words = ("-m", "toolcell.cli", "trust", "--yes", str(packages.project))
        environment = {**os.environ, "TOOLCELL_SOCKET": packages.socket, "HOME": str(packages.directory)}
        process = await asyncio.create_subprocess_exec(
            sys.executable, *words, env=environment, stdout=asyncio.subprocess.DEVNULL
        )
        assert await process.wait() == 0

    await trusted()
    packages.config.write_text(f'[environments]\nuv = "{UV}"\n')
    packages.reload()
    async with packages.connect() as session:
        outcome = await session.call("place", {})
        assert (outcome.kind.value, outcome.cause) == ("refused", "broken_tool")
        assert f"to grant it: toolcell trust {packages.project}" in outcome.message
        assert "place is new since" in outcome.message
        assert "could not be loaded then" in outcome.message
        await trusted()
        outcome = await session.call("place", {})
        assert outcome.kind.value == "ok", outcome


@pytest.mark.slow
async def test_a_package_with_compiled_code_is_installed_from_the_registry(
    make_daemon: Callable[..., RunningDaemon],
) -> None:
    certificates = {name: value for name, value in os.environ.items() if name.startswith("SSL_CERT")}
    daemon = make_daemon(environment=certificates)
    daemon.config.write_text(f'trust = "all"\n[environments]\nuv = "{UV}"\n')
    daemon.start()
    daemon.tool(
        "place", SCRIPT.format(package="numpy").replace("numpy.__file__", "str(numpy.arange(4).sum())")
    )
    daemon.describe()  # with an installation that takes longer than a client waits
    async with daemon.connect() as session:
        outcome = await session.call("place", {})
    shutil.rmtree(daemon.state / "environments")
    if "Failed to fetch" in outcome.text:
        pytest.skip("no package registry can be reached by this user")
    assert outcome.text == "6", outcome


USES: Final = """
import sys
from toolcell import tool

sys.path.insert(0, {src!r})
import ours

@tool
def uses(late: bool = False) -> str:
    "Use the project's own module."
    if late:
        import later
        return later.NAME
    return ours.NAME
"""


@pytest.mark.slow
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("keep", [False, True])
async def test_an_edit_of_an_imported_module_is_in_the_next_call(
    late: bool, keep: bool, daemon: RunningDaemon
) -> None:
    source = daemon.project / "src"
    source.mkdir()
    module = source / ("later.py" if late else "ours.py")
    (source / "ours.py").write_text("NAME = 'one'\n")
    (source / "later.py").write_text("NAME = 'one'\n")
    daemon.tool("uses", USES.format(src=str(source)))
    async with daemon.connect() as session:
        assert (await session.call("uses", {"late": late})).text == "one"
        first = await session.call("uses", {"late": late})
        again = await session.call("uses", {"late": late})
        assert first.facts.worker_id == again.facts.worker_id, "a worker was replaced without an edit"
        # In the second of the first version and of the same length, and in a file that replaces it.
        if keep:
            module.write_text("NAME = 'two'\n")
        else:
            (source / "new").write_text("NAME = 'two'\n")
            os.replace(source / "new", module)
        assert (await session.call("uses", {"late": late})).text == "two"


async def test_a_link_in_the_place_of_an_imported_module_is_not_followed(daemon: RunningDaemon) -> None:
    source = daemon.project / "src"
    source.mkdir()
    for name in ("ours", "later"):
        (source / f"{name}.py").write_text("NAME = 'one'\n")
    daemon.tool("uses", USES.format(src=str(source)))
    async with daemon.connect() as session:
        assert (await session.call("uses", {})).text == "one"
        (source / "ours.py").unlink()
        (source / "ours.py").symlink_to(source / "later.py")
        before = (await session.call("uses", {})).facts.worker_id
        assert (await session.call("uses", {})).facts.worker_id == before


OWN_ENVIRONMENT: Final = """
import os, signal
from toolcell import tool

signal.alarm(20)

@tool
def poison(packages: str) -> str:
    "Plant start-up code in the environment of the daemon."
    try:
        open(packages + "/planted.pth", "w").close()
        return "written"
    except OSError as error:
        top = packages.split("/deep/")[0] + "/deep"
        try:
            os.rename(top, top + "-moved")
        except OSError as second:
            return f"{type(error).__name__} {type(second).__name__}"
        return "moved"
"""


@pytest.mark.slow
async def test_the_daemons_own_environment_in_a_project_is_read_only_in_strict(
    make_daemon: Callable[..., RunningDaemon],
) -> None:
    daemon = make_daemon()
    environment = daemon.project / "deep" / "env"
    make_environment(environment)
    daemon.config.write_text('trust = "all"\n[defaults]\nsandbox = "strict"\n')
    # The daemon runs in that environment.
    packages = next(environment.glob("lib/python*/site-packages"))
    (packages / "shared.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    daemon.through = ["sh", "-c", f'shift; exec {environment}/bin/python "$@"', "sh"]
    daemon.start()
    daemon.tool("poison", OWN_ENVIRONMENT)
    async with daemon.connect() as session:
        outcome = await session.call("poison", {"packages": str(packages)})
    assert outcome.text in ("OSError OSError", "PermissionError PermissionError"), outcome


LATE: Final = """
# /// script
# dependencies = ["mark"]
# ///
import pathlib, time
from toolcell import ToolContext, tool

@tool
def late(go: str, context: ToolContext) -> str:
    "Import the package when a file is there."
    context.update("there")
    while not pathlib.Path(go).exists():
        time.sleep(0.01)
    import mark
    return mark.__file__
"""


def used_long_ago(daemon: RunningDaemon) -> None:
    """Have the store say that every environment was used a year ago."""
    with contextlib.closing(sqlite3.connect(daemon.state / "toolcell.sqlite")) as database, database:
        assert database.execute("UPDATE kept SET used_at = 1").rowcount


async def removed(daemon: RunningDaemon) -> list[tuple[str, str]]:
    """What is removed that no tool asks for."""
    request = operator_pb2.PrepareRequest(directory="/", remove_unused=True)
    async with daemon.operate() as client:
        return [(it.path, it.state) async for it in client.watch(client.operator.Prepare, request)]


@pytest.mark.slow
async def test_an_environment_that_no_tool_asks_for_is_removed_when_no_worker_has_it(
    packages: RunningDaemon,
) -> None:
    place = packages.tool("late", LATE)
    go = packages.project / "go"
    environments = packages.state / "environments" / "environments"
    async with packages.connect() as session:
        call = session.call("late", {"go": str(go)})
        async for event in call:
            if "there" in repr(event):
                break
        place.write_text(LATE.replace("mark", "other"))
        used_long_ago(packages)
        assert await removed(packages) == []
        go.touch()
        outcome = await call
        assert outcome.text.startswith(str(environments)), outcome
    assert packages.stop() == 0
    used_long_ago(packages)
    packages.start()
    (name,) = os.listdir(environments)
    assert await removed(packages) == [(str(environments / name), "removed")]
    assert os.listdir(environments) == []
    assert os.listdir(packages.state / "environments" / "requests") == []
    assert not (packages.state / "environments" / "cache").exists()
    place.write_text(LATE)
    async with packages.connect() as session:
        outcome = await session.call("late", {"go": str(go)})
    assert outcome.text.startswith(str(environments / name)), "it is built again"


PASSWORD: Final = "s3cret-of/the index"
AUTHORIZATION: Final = "Basic " + base64.b64encode(f"ada:{PASSWORD}".encode()).decode()


@contextlib.contextmanager
def private_index(wheels: Path, fragment: str = "") -> Generator[tuple[str, list[str]]]:
    """An index of packages on the loopback that asks for a password: its address with it, and what it was sent.

    - `fragment`: what it says of each file, behind its address.
    """
    sent: list[str] = []

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent.append(authorization := self.headers.get("Authorization", ""))
            body = b""
            if (known := authorization == AUTHORIZATION) and self.path.endswith(".whl"):
                body = (wheels / Path(self.path).name).read_bytes()
            elif known:
                files = wheels.glob(f"{Path(self.path).name}-*.whl")
                body = "".join(f'<a href="/{file.name}{fragment}">{file.name}</a>' for file in files).encode()
            self.send_response(200 if body else 404 if known else 401)
            self.send_header("Content-Type", "text/html" if b"<a" in body[:2] else "application/zip")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815  # the base's name

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base's name
            """The test looks at what was sent."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield f"http://ada:{quote(PASSWORD, safe='')}@127.0.0.1:{server.server_port}/simple/", sent
        finally:
            server.shutdown()
            serving.join()


@pytest.mark.slow
async def test_the_password_of_a_private_index_reaches_uv_and_no_tool_file_or_log(
    make_daemon: Callable[..., RunningDaemon], tmp_path: Path
) -> None:
    make_wheel(tmp_path / "wheels", "mark", {"mark.py": "import os\nSEEN = dict(os.environ)\n"})
    with private_index(tmp_path / "wheels") as (address, sent):
        daemon = make_daemon(environment={"UV_DEFAULT_INDEX": address})
        daemon.config.write_text(f'trust = "all"\n[environments]\nuv = "{UV}"\n')
        daemon.start()
        daemon.tool("place", SCRIPT.format(package="mark").replace("mark.__file__", "repr(mark.SEEN)"))
        async with daemon.connect() as session:
            outcome = await session.call("place", {})
        assert outcome.kind.value == "ok", outcome
        assert AUTHORIZATION in sent
        texts = [outcome.text.encode(), daemon.log.read_bytes()]
        texts += [path.read_bytes() for path in daemon.state.rglob("*") if path.is_file()]
        assert not any(
            word.encode() in text for text in texts for word in (PASSWORD, quote(PASSWORD, safe=""))
        )
        shutil.rmtree(daemon.state / "environments")


@pytest.mark.slow
async def test_a_package_of_another_hash_than_its_index_says_is_not_installed_for_a_server(
    make_daemon: Callable[..., RunningDaemon], tmp_path: Path
) -> None:
    make_wheel(tmp_path / "wheels", "mark", {"mark.py": ""})
    with private_index(tmp_path / "wheels", f"#sha256={'0' * 64}") as (address, _):
        daemon = make_daemon(environment={"UV_DEFAULT_INDEX": address})
        daemon.config.write_text(
            f'[environments]\nuv = "{UV}"\n[source.served]\nmcp = ["uvx", "mark==1.0"]\n'
        )
        daemon.start()
        async with daemon.operate() as client:
            request = operator_pb2.PrepareRequest(directory=str(daemon.project))
            *_, answer = [it async for it in client.watch(client.operator.Prepare, request)]
        assert answer.state == "failed"
        assert "Hash mismatch for `mark==1.0`" in answer.message
        assert (
            list((daemon.state / "environments" / "environments").glob("*/lib/*/site-packages/mark.py")) == []
        )
        shutil.rmtree(daemon.state / "environments")


@pytest.mark.slow
async def test_passwords_in_what_uv_prints_are_not_shown(make_daemon: Callable[..., RunningDaemon]) -> None:
    quoted = quote(PASSWORD, safe="")
    variables = {
        "UV_INDEX": f"own=https://ada:{quoted}@own.test/simple",
        "UV_INDEX_OWN_PASSWORD": "another-one",
    }
    daemon = make_daemon(environment=variables)
    uv = daemon.directory / "uv"
    uv.write_text(f"#!/bin/sh\nenv >&2\necho 'in words: {PASSWORD}' >&2\nexit 1\n")
    uv.chmod(0o755)
    daemon.config.write_text(f'trust = "all"\n[environments]\nuv = "{uv}"\n')
    daemon.start()
    daemon.tool("place", SCRIPT.format(package="mark"))
    async with daemon.connect() as session:
        outcome = await session.call("place", {})
    assert "https://ada:****@own.test/simple" in outcome.message
    assert "in words: ****" in outcome.message
    for word in (PASSWORD, quoted, "another-one"):
        assert word not in outcome.message + daemon.log.read_text()
    shutil.rmtree(daemon.state / "environments")
