"""`toolcell prepare` with the real bun and npm, and a registry on the loopback."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import signal
import sqlite3
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.authoring.npm_registry import Registry, registry
from tests.cli.conftest import Project, user_daemon
from tests.conftest import descendants
from tests.daemons import RunningDaemon, kept, renewed
from tests.engines import BUN, NODE

pytestmark = pytest.mark.sampled("manager", "engine")

TOOL = """
import dep from "dep"
import fs from "node:fs"

export default {
  description: "Say what the package says",
  args: {},
  async execute() {
    let written = "no"
    try { fs.writeFileSync(dep.place, "x"); written = "yes" } catch {}
    return [dep.word, dep.place, written, process.env.NODE_PATH].join("|")
  },
}
"""
LATE = """
export default { description: "Say it", args: {}, execute: async () => (await import("dep")).default.word }
"""
TOKEN = "npm_0123456789abcdefSECRET"
DEP = 'module.exports = { word: "found", place: __filename }\n'


@pytest.fixture(scope="module")
def served() -> Iterator[Registry]:
    with registry() as found:
        yield found


@pytest.fixture(scope="module")
def of_all(served: Registry) -> Iterator[RunningDaemon]:
    """A user's daemon that has both engines, and that registry."""
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp") as home:
        daemon = user_daemon(Path(home))
        path = f"{BUN.parent}:{NODE.parent}:/usr/bin:/bin"
        daemon.environment |= {"PATH": path, "npm_config_registry": served.address, "CORP_TOKEN": TOKEN}
        with kept(daemon):
            daemon.start()
            yield daemon


@pytest.fixture
def daemon(of_all: RunningDaemon) -> Iterator[RunningDaemon]:
    """The same; what a test has installed is removed after it."""
    with renewed(of_all):
        yield of_all
    shutil.rmtree(of_all.state / "packages", ignore_errors=True)


@pytest.fixture
def packages(served: Registry) -> Iterator[Registry]:
    """The registry with one package."""
    served.clear()
    served.add("dep", {"index.js": DEP})
    yield served
    served.clear()


@pytest.fixture
def untrusted(daemon: RunningDaemon) -> Project:
    """A project with a tool that imports the package."""
    project = Project(daemon.directory, daemon.project)
    (project.tools / "say.ts").write_text(TOOL)
    return project


@pytest.fixture
def trusted(untrusted: Project, daemon: RunningDaemon) -> Project:
    """The same in a trusted project."""
    daemon.config.parent.mkdir(parents=True)
    daemon.configure('trust = "all"\n')
    return untrusted


def installed(project: Project) -> list[Path]:
    """The directories of installed packages."""
    return list((project.home / "state" / "packages").glob("*/node_modules"))


@pytest.mark.slow
@pytest.mark.parametrize("manager", ["bun", "npm"])
@pytest.mark.parametrize("engine", ["bun", "node"])
def test_what_the_lock_file_says_is_installed_and_the_tool_reads_it(
    engine: str, manager: str, trusted: Project, daemon: RunningDaemon, packages: Registry
) -> None:
    daemon.configure(f'[source.project]\nruntime = "{engine}"\n')
    packages.add("@scope/part", {"index.js": DEP.replace("found", "scoped")})
    packages.lock(trusted.directory, manager, "dep", "@scope/part")
    script = TOOL.replace("[dep.word", "[dep.word + part.word")
    (trusted.tools / "say.ts").write_text(f'import part from "@scope/part"\n{script}')
    before = sorted(trusted.directory.iterdir())
    checked = trusted.run("check")
    assert checked.code == 1
    assert "is not installed; nothing is installed during a call." in checked.out
    assert f"toolcell prepare {trusted.directory}" in checked.out
    done = trusted.run("prepare")
    assert done.code == 0, done
    assert f"{trusted.directory}: installed: the packages of " in done.out
    assert sorted(trusted.directory.iterdir()) == before, "the installation wrote into the project"
    said = trusted.run("call", "say")
    word, place, written, variable = said.out.strip().split("|")
    assert (word, written, variable) == ("foundscoped", "no", ""), said
    assert Path(place).is_relative_to(trusted.home / "state" / "packages")
    asked = len(packages.asked)
    again = trusted.run("prepare", "--json").json("prepare")
    assert [(it["path"], it["state"]) for it in again["places"]] == [(str(trusted.directory), "present")]
    assert len(packages.asked) == asked


@pytest.mark.slow
@pytest.mark.parametrize("manager", ["bun", "npm"])
def test_a_package_that_was_published_again_under_another_hash_is_not_installed(
    manager: str, trusted: Project, daemon: RunningDaemon, packages: Registry
) -> None:
    packages.lock(trusted.directory, manager, "dep")
    packages.add("dep", {"index.js": DEP.replace("found", "another")})
    done = trusted.run("prepare")
    assert done.code == 1, done
    assert "integrity" in f"{done.out}{done.err}".lower()
    assert installed(trusted) == []


@pytest.mark.slow
def test_an_edit_of_the_lock_file_makes_other_packages_and_the_old_ones_are_not_used_but_removed(
    trusted: Project, daemon: RunningDaemon, packages: Registry
) -> None:
    packages.lock(trusted.directory, "bun", "dep")
    assert trusted.run("prepare").code == 0
    packages.add("other", {"index.js": DEP})
    packages.lock(trusted.directory, "bun", "dep", "other")
    assert "toolcell prepare" in trusted.run("check").out
    assert trusted.run("prepare").code == 0
    assert len(installed(trusted)) == 2
    assert trusted.run("check").code == 0
    recent = trusted.run("prepare", "--remove-unused")
    assert (recent.code, recent.out.startswith("Nothing to remove")) == (0, True), recent
    assert daemon.stop() == 0  # which remembers what it has used
    with contextlib.closing(sqlite3.connect(daemon.state / "toolcell.sqlite")) as database, database:
        assert database.execute("UPDATE kept SET used_at = 1").rowcount >= 2  # with those of other tests
    daemon.start()
    assert "2 of " in (told := trusted.run("doctor").out)
    assert "1 of them, of " in told
    assert "toolcell prepare --remove-unused" in told
    done = trusted.run("prepare", "--remove-unused", "--json").json("prepare")
    assert [it["state"] for it in done["places"]] == ["removed"]
    assert [str(place.parent) for place in installed(trusted)] != [done["places"][0]["path"]]
    assert trusted.run("call", "say").out.startswith("found|")


@pytest.mark.slow
@pytest.mark.parametrize("manager", ["bun", "npm"])
def test_no_script_of_a_package_or_the_project_is_run(
    manager: str, trusted: Project, packages: Registry
) -> None:
    """A script could only write where the installation can, so that is where it leaves its mark."""
    mark: dict[str, str] = dict.fromkeys(
        ("preinstall", "install", "postinstall", "prepare"), "echo ran >../../ran; echo ran >ran"
    )
    packages.add("dep", {"index.js": DEP}, scripts=mark)
    packages.lock(trusted.directory, manager, "dep")
    asked = json.loads((trusted.directory / "package.json").read_text())
    own = {"scripts": dict.fromkeys(mark, "echo ran >ran"), "trustedDependencies": ["dep"]}
    (trusted.directory / "package.json").write_text(json.dumps(asked | own))
    if manager == "bun":
        lock = json.loads((trusted.directory / "bun.lock").read_text())
        (trusted.directory / "bun.lock").write_text(json.dumps(lock | {"trustedDependencies": ["dep"]}))
    done = trusted.run("prepare")
    assert done.code == 0, done
    (place,) = installed(trusted)
    assert (place / "dep" / "index.js").is_file()
    assert [path for path in place.parent.rglob("*") if path.name == "ran"] == []


@pytest.mark.slow
@pytest.mark.parametrize("manager", ["bun", "npm"])
def test_a_tarball_with_paths_upwards_and_links_leaves_nothing_outside_of_its_package(
    manager: str, trusted: Project, packages: Registry
) -> None:
    upwards = [tarfile.TarInfo(f"package/{'../' * depth}escaped") for depth in (1, 2, 3, 9)]
    for entry in upwards:
        entry.size = 1
    absolute = tarfile.TarInfo("/tmp/escaped")  # as a package would have it
    absolute.size = 1
    link, through = tarfile.TarInfo("package/home"), tarfile.TarInfo("package/home/escaped")
    link.type, link.linkname, through.size = tarfile.SYMTYPE, str(trusted.home), 1
    packages.add("dep", {"index.js": DEP}, entries=[*upwards, absolute, link, through])
    packages.lock(trusted.directory, manager, "dep")
    trusted.run("prepare")
    for place in (trusted.home, Path("/tmp")):
        assert not (place / "escaped").exists()
    package = {path.resolve() for place in installed(trusted) for path in [place / "dep"]}
    found = [path for path in trusted.home.rglob("escaped") if not {*path.resolve().parents} & package]
    assert found == []


@pytest.mark.slow
@pytest.mark.parametrize("manager", ["bun", "npm"])
def test_a_lock_file_that_names_another_host_is_refused_by_the_network_of_the_cell(
    manager: str, trusted: Project, packages: Registry
) -> None:
    with registry() as other:
        other.add("dep", {"index.js": DEP})
        packages.lock(trusted.directory, manager, "dep", tarball=other.tarball("dep"))
        done = trusted.run("prepare")
        assert (done.code, other.asked) == (1, [])
    assert ": failed: " in done.out
    assert installed(trusted) == []
    assert len(done.out) < 8000


@pytest.mark.slow
@pytest.mark.parametrize("manager", ["bun", "npm"])
def test_settings_of_the_project_name_no_registry_and_send_no_token(
    manager: str, trusted: Project, packages: Registry
) -> None:
    packages.add("@scope/part", {"index.js": DEP})
    packages.lock(trusted.directory, manager, "dep", "@scope/part")
    host = packages.address.removeprefix("http:")
    with registry() as other:
        to = other.address.removeprefix("http:")
        lines = (
            f"registry={other.address}\n{host}:_authToken=theirs\n{to}:_authToken=${{CORP_TOKEN}}\n"
            f"@scope:registry={other.address}\n_authToken=${{CORP_TOKEN}}\nignore-scripts=false\n"
        )
        (trusted.directory / ".npmrc").write_text(lines)
        (trusted.home / ".npmrc").write_text(f"{host}:_authToken={TOKEN}\n")
        (trusted.directory / "bunfig.toml").write_text(f'[install]\nregistry = "{other.address}"\n')
        done = trusted.run("prepare")
        assert done.code == 0, done
        assert other.asked == []
    assert set(packages.credentials) == {f"Bearer {TOKEN}"}


def processes_with(text: str, daemon: RunningDaemon) -> list[str]:
    """The processes of a daemon that have a text in their command or environment."""
    found: list[str] = []
    for place in (Path("/proc", str(pid)) for pid in descendants(daemon.pid)):
        with contextlib.suppress(OSError):
            words = (place / "cmdline").read_bytes()
            if text.encode() in words + (place / "environ").read_bytes():
                found.append(words.decode(errors="replace"))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("manager", "written"), [("bun", "${CORP_TOKEN}"), ("npm", TOKEN)])
def test_a_private_registry_gets_the_users_token_and_nothing_else_does(
    manager: str, written: str, trusted: Project, daemon: RunningDaemon, packages: Registry
) -> None:
    with registry() as private:
        private.demands = f"Bearer {TOKEN}"
        private.add("@corp/part", {"index.js": DEP.replace("found", "private")})
        packages.add(
            "@corp/part", {"index.js": DEP}
        )  # for its hash; the one of the private registry is installed
        packages.tarballs["@corp/part"] = private.tarballs["@corp/part"]
        packages.lock(trusted.directory, manager, "dep", "@corp/part")
        for lock in trusted.directory.glob("*lock*"):
            lock.write_text(
                lock.read_text().replace(packages.tarball("@corp/part"), private.tarball("@corp/part"))
            )
        host = private.address.removeprefix("http:")
        (trusted.home / ".npmrc").write_text(
            f"@corp:registry={private.address}\n{host}:_authToken={written}\n"
        )
        script = TOOL.replace("process.env.NODE_PATH", "JSON.stringify(process.env)")
        (trusted.tools / "say.ts").write_text(
            f'import part from "@corp/part"\n{script}'.replace("[dep.word", "[dep.word + part.word")
        )
        private.waits = threading.Event()
        try:
            with trusted.started("prepare") as process:
                while not private.asked:
                    assert process.poll() is None, daemon.log.read_text()
                    threading.Event().wait(0.01)
                assert processes_with(manager, daemon), "it is among them"
                seen = processes_with(TOKEN, daemon)
                private.waits.set()
                assert process.wait(60) == 0
        finally:
            private.waits.set()
        assert seen == []
        assert set(private.credentials) == {f"Bearer {TOKEN}"}
        assert packages.credentials == []
        said = trusted.run("call", "say").out
        assert said.startswith("foundprivate|")
        assert TOKEN not in said
        for path in [daemon.log, *(path for path in daemon.state.rglob("*") if path.is_file())]:
            assert TOKEN.encode() not in path.read_bytes(), path


@pytest.mark.slow
@pytest.mark.parametrize("manager", ["bun", "npm"])
def test_what_a_registry_says_of_a_token_is_shown_without_it(
    manager: str, trusted: Project, daemon: RunningDaemon, packages: Registry
) -> None:
    packages.lock(trusted.directory, manager, "dep")
    packages.demands = "Bearer another"
    host = packages.address.removeprefix("http:")
    (trusted.home / ".npmrc").write_text(f"{host}:_authToken={TOKEN}\n")
    done = trusted.run("prepare")
    assert done.code == 1
    assert f"cannot install from {packages.address}" in done.out
    assert set(packages.credentials) == {f"Bearer {TOKEN}"}
    assert TOKEN not in done.out + done.err + daemon.log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("place", ["/tmp", "/tmp/home"])
def test_a_lock_file_that_names_a_directory_of_the_cell_gets_no_token_from_it(
    place: str, trusted: Project, daemon: RunningDaemon, packages: Registry
) -> None:
    """By bun, which copies all of it; npm leaves out every .npmrc."""
    packages.lock(trusted.directory, "bun", "dep")
    host = packages.address.removeprefix("http:")
    (trusted.home / ".npmrc").write_text(f"{host}:_authToken={TOKEN}\n")
    asked = json.loads((trusted.directory / "package.json").read_text())
    asked["dependencies"]["taken"] = f"file:{place}"
    (trusted.directory / "package.json").write_text(json.dumps(asked))
    lock = json.loads((trusted.directory / "bun.lock").read_text())
    lock["workspaces"][""]["dependencies"] = asked["dependencies"]
    lock["packages"]["taken"] = [f"taken@file:{place}", {}]
    (trusted.directory / "bun.lock").write_text(json.dumps(lock))
    trusted.run("prepare")
    assert set(packages.credentials) == {f"Bearer {TOKEN}"}, "it had the token"
    for path in [daemon.log, *(path for path in daemon.state.rglob("*") if path.is_file())]:
        assert TOKEN.encode() not in path.read_bytes(), path


@pytest.mark.slow
def test_nothing_is_installed_for_a_project_that_is_not_trusted(
    untrusted: Project, packages: Registry
) -> None:
    packages.lock(untrusted.directory, "bun", "dep")
    done = untrusted.run("prepare")
    assert (done.code, packages.asked, installed(untrusted)) == (3, [], [])
    assert f"toolcell trust {untrusted.directory}" in done.out


def test_a_package_json_that_is_a_link_is_not_followed_in_a_project(
    trusted: Project, packages: Registry
) -> None:
    packages.lock(trusted.directory, "bun", "dep")
    elsewhere = trusted.home / "elsewhere.json"
    (trusted.directory / "package.json").rename(elsewhere)
    (trusted.directory / "package.json").symlink_to(elsewhere)
    done = trusted.run("prepare")
    assert (done.code, packages.asked) == (1, [])
    assert f"{trusted.directory}/package.json is a link, which is not followed in a project" in done.out


@pytest.mark.slow
def test_packages_of_the_project_itself_are_left_as_they_are(trusted: Project, packages: Registry) -> None:
    packages.lock(trusted.directory, "bun", "dep")
    own = trusted.directory / "node_modules" / "dep"
    own.mkdir(parents=True)
    (own / "index.js").write_text(DEP.replace("found", "own"))
    done = trusted.run("prepare")
    assert (done.code, packages.asked) == (0, [])
    assert "present: it has node_modules, which is used as it is" in done.out
    assert trusted.run("call", "say").out.startswith("own|")


@pytest.mark.anyio
@pytest.mark.slow
@pytest.mark.parametrize("engine", ["bun", "node"])
async def test_a_session_that_is_open_has_the_packages_in_its_next_call(
    engine: str, trusted: Project, daemon: RunningDaemon, packages: Registry
) -> None:
    daemon.configure(f'[source.project]\nruntime = "{engine}"\n')
    (trusted.tools / "say.ts").write_text(LATE)
    packages.lock(trusted.directory, "bun", "dep")
    async with daemon.connect() as session:
        before = await session.call("say")
        assert (before.kind.value, "dep" in before.text) == ("tool_error", True), before
        done = await asyncio.to_thread(trusted.run, "prepare")
        assert done.code == 0, done
        after = await session.call("say")
        assert (after.kind.value, after.text) == ("ok", "found"), after


@pytest.mark.slow
def test_an_interrupt_ends_the_installation_and_leaves_nothing(trusted: Project, packages: Registry) -> None:
    packages.lock(trusted.directory, "npm", "dep")
    packages.waits = threading.Event()
    try:
        with trusted.started("prepare") as process:
            assert process.stdout is not None
            assert ": installing: " in process.stdout.readline()
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
    finally:
        packages.waits.set()
    packages.waits = None
    assert trusted.run("prepare").code == 0
    (place,) = (trusted.home / "state" / "packages").iterdir()
    assert [place / "node_modules"] == installed(trusted), "the interrupted one has left something"


@pytest.mark.slow
def test_the_users_own_tools_directory_is_prepared_from_anywhere(
    untrusted: Project, packages: Registry
) -> None:
    own = untrusted.home / ".config" / "toolcell" / "tools"
    own.mkdir(parents=True)
    (untrusted.tools / "say.ts").rename(own / "say.ts")
    packages.lock(own.parent, "bun", "dep")
    done = untrusted.run("prepare", "/usr")
    assert (done.code, "installed" in done.out) == (0, True), done
    assert untrusted.run("call", "say").out.startswith("found|")


@pytest.mark.slow
def test_without_packages_there_is_nothing_to_install(trusted: Project) -> None:
    done = trusted.run("prepare")
    assert (done.code, done.out) == (
        0,
        f"Nothing to install: no tool of {trusted.directory} asks for packages.\n",
    )
    refused = trusted.run("prepare", "nowhere")
    assert refused.code != 0
    assert "is not a directory" in refused.err
