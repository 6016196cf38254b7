"""Where tools in TypeScript are found: links of the user's own, names that Python has too, and machines without an engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.daemons import RunningDaemon, renewed, running_daemon
from tests.engines import BUN, NODE

from toolcell_proto.v1 import operator_pb2

pytestmark = pytest.mark.anyio

SAY = 'export default {{ description: "{0}", args: {{}}, execute: async () => "{0}" }}\n'
PYTHON = 'from toolcell import tool\n\n@tool\ndef {0}() -> str:\n    "Python."\n    return "python"\n'
INSTALLED = 'export const word = "beside"\n'


@pytest.fixture(scope="module")
def of_bun() -> Iterator[RunningDaemon]:
    with running_daemon(environment={"PATH": str(BUN.parent)}) as daemon:
        yield daemon


@pytest.fixture
def daemon(of_bun: RunningDaemon) -> Iterator[RunningDaemon]:
    with renewed(of_bun):
        yield of_bun


@pytest.fixture(scope="module")
def of_nothing() -> Iterator[RunningDaemon]:
    """A daemon whose PATH has no engine; what node and bun there are on this machine are elsewhere."""
    with running_daemon(environment={"PATH": "/nowhere"}) as daemon:
        yield daemon


@pytest.fixture
def without_engine(of_nothing: RunningDaemon) -> Iterator[RunningDaemon]:
    with renewed(of_nothing):
        yield of_nothing


def engine_of(daemon: RunningDaemon) -> operator_pb2.Finding:
    found = daemon.ask("Operator/Doctor", operator_pb2.DoctorRequest(), operator_pb2.DoctorResponse)
    (finding,) = [one for one in found.findings if one.name == "engine for TypeScript"]
    return finding


@pytest.mark.slow
async def test_without_an_engine_every_other_tool_works_and_the_problem_names_what_to_install(
    without_engine: RunningDaemon,
) -> None:
    daemon = without_engine
    daemon.tool("plain", PYTHON.format("plain"))
    plugins = daemon.project / ".toolcell" / "plugins"
    plugins.mkdir()
    reads = {
        "name": "read",
        "description": "Read.",
        "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}},
    }
    reads["handler"] = {"type": "file-read", "basePath": "."}
    content = {"name": "mine", "version": "0.1.0", "tools": [reads]}
    (plugins / "mine.json").write_text(json.dumps(content))
    script = daemon.project / ".toolcell" / "tools" / "say.ts"
    script.write_text(SAY.format("said"))
    async with daemon.connect() as session:
        assert sorted(session.catalog.tools) == ["plain", "read"]
        (problem,) = session.catalog.problems
        assert problem.path == str(script)
        assert "is TypeScript, which bun or node runs, and there is none" in problem.message
        for named in (
            "npm install --global bun",
            "https://bun.sh",
            "node 24 or later",
            "https://nodejs.org",
            "PATH",
        ):
            assert named in problem.message
        assert (await session.call("plain")).text == "python"
        assert (await session.call("read", {"path": ".toolcell/tools/say.ts"})).text == SAY.format("said")
        refused = await session.call("say")
        assert (refused.kind.value, refused.cause) == ("refused", "broken_tool")
        assert "install bun" in refused.message
    finding = engine_of(daemon)
    assert (finding.state, finding.detail) == ("missing", "there is neither bun nor node")
    assert "install bun" in finding.remedy


@pytest.mark.slow
async def test_doctor_shows_the_engine_with_its_path_and_the_version_that_it_says_itself(
    daemon: RunningDaemon,
) -> None:
    finding = engine_of(daemon)
    assert finding.state == "available", finding
    name, version, path = finding.detail.replace(",", "").split()
    assert (name, path) == ("bun", str(BUN.resolve()))
    assert version.split(".")[0] == "1"


def program_of(daemon: RunningDaemon, name: str) -> operator_pb2.Finding:
    found = daemon.ask("Operator/Doctor", operator_pb2.DoctorRequest(), operator_pb2.DoctorResponse)
    (finding,) = [one for one in found.findings if one.name == f"program {name}"]
    return finding


@pytest.mark.slow
async def test_doctor_shows_which_file_a_program_is_and_what_became_of_it(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    place = tmp_path_factory.mktemp("programs")
    (uv := place / "uv").write_text("#!/bin/sh\n")
    uv.chmod(0o755)
    with running_daemon(environment={"PATH": f"{place}:/usr/bin:/bin"}) as daemon:
        finding = program_of(daemon, "uv")
        assert finding.state == "in use", finding
        assert finding.detail.startswith(f"{uv}, 10 bytes of ")
        assert f"inode {uv.stat().st_ino} of device" in finding.detail
        (place / ".git").mkdir()
        finding = program_of(daemon, "uv")
        assert finding.state == "missing", finding
        assert finding.detail == f"{uv}: it lies in the project {place}, where tools can write"
        assert "restart the daemon" in finding.remedy


async def test_an_engine_that_does_not_run_is_missing_for_doctor(
    of_bun: RunningDaemon, daemon: RunningDaemon
) -> None:
    own = Path(daemon.directory) / ".bun" / "bin"
    own.mkdir(parents=True)
    (own / "node").write_bytes(b"\x7fELF and nothing else")
    (own / "node").chmod(0o755)
    daemon.configure('\n[source.project]\nruntime = "node"\n')
    (daemon.project / ".toolcell" / "tools" / "say.ts").write_text(SAY.format("said"))
    async with daemon.connect() as session:
        assert session.catalog.tools == {}
        (problem,) = session.catalog.problems
    assert "node" in problem.message
    assert engine_of(daemon).state == "available", "bun is still there"


@pytest.mark.slow
@pytest.mark.parametrize("sandbox", ["strict", "baseline"])
async def test_a_link_to_the_users_tools_works_for_scripts_and_their_packages(
    daemon: RunningDaemon, sandbox: str
) -> None:
    """As dotfile managers make them; the packages lie beside the directory that the link leads to."""
    dotfiles = daemon.directory / "dotfiles" / "toolcell"
    (dotfiles / "tools").mkdir(parents=True)
    package = dotfiles / "node_modules" / "beside"
    package.mkdir(parents=True)
    (package / "package.json").write_text('{"name": "beside", "type": "module", "main": "index.js"}')
    (package / "index.js").write_text(INSTALLED)
    (dotfiles / "package.json").write_text("{}")
    (dotfiles / "tools" / "_help.ts").write_text('export const help: string = "help"\n')
    (dotfiles / "tools" / "say.ts").write_text(
        'import { word } from "beside"\nimport { help } from "./_help"\n'
        'export default { description: "Say", args: {}, execute: async () => `${word} ${help}` }\n'
    )
    place = daemon.directory / ".config" / "toolcell"
    place.mkdir(parents=True)
    (place / "tools").symlink_to(dotfiles / "tools")
    daemon.config.write_text(f'[defaults]\nsandbox = "{sandbox}"\n')
    daemon.reload()
    async with daemon.connect() as session:
        assert session.catalog.problems == ()
        assert (await session.call("say")).text == "beside help"


async def test_describing_sees_the_project_and_can_write_nothing_of_it(daemon: RunningDaemon) -> None:
    """What a script does while it is loaded is in its description."""
    (daemon.project / "lib").mkdir()
    (daemon.project / "lib" / "words.ts").write_text('export const word = "from above"\n')
    tools = daemon.project / ".toolcell" / "tools"
    (tools / "say.ts").write_text(
        'import fs from "node:fs"\nimport { word } from "../../lib/words"\n'
        'const tried = (place: string) => { try { fs.writeFileSync(place, "x"); return "written" } catch (error) { return error.code } }\n'
        f'const places = ["{daemon.project}/a", "{daemon.project}/lib/words.ts", "{tools}/b.ts"]\n'
        "export default { description: [word, ...places.map(tried)].join(), args: {}, execute: async () => 'x' }\n"
    )
    async with daemon.connect() as session:
        word, *written = session.catalog.tools["say"].description.split(",")
    assert word == "from above"
    assert len(written) == 3
    assert set(written) <= {"EACCES", "EROFS"}
    assert not (daemon.project / "a").exists()


@pytest.mark.slow
async def test_of_a_script_and_a_python_file_of_one_name_the_first_is_used_and_the_other_named(
    daemon: RunningDaemon,
) -> None:
    tools = daemon.project / ".toolcell" / "tools"
    daemon.tool("both", PYTHON.format("both"))
    (tools / "both.ts").write_text(SAY.format("script"))
    own = daemon.directory / ".config" / "toolcell" / "tools"
    own.mkdir(parents=True)
    daemon.tool("mine", PYTHON.format("mine"))
    (own / "mine.ts").write_text(SAY.format("script"))
    (own / "theirs.py").write_text(PYTHON.format("theirs"))
    (tools / "theirs.mts").write_text(SAY.format("script"))
    async with daemon.connect() as session:
        said = {name: (await session.call(name)).text for name in ("both", "mine", "theirs")}
        problems = {problem.path: problem for problem in session.catalog.problems}
    assert said == {"both": "python", "mine": "python", "theirs": "script"}
    hidden = [str(tools / "both.ts"), str(own / "mine.ts"), str(own / "theirs.py")]
    assert sorted(problems) == sorted(hidden)
    told = {path: (problem.reason, problem.message) for path, problem in problems.items()}
    assert [told[path][0] for path in hidden] == ["rejected", "shadowed", "shadowed"], told


@pytest.mark.slow
async def test_a_wrong_runtime_is_an_error_that_names_the_line_and_what_may_stand_there(
    daemon: RunningDaemon,
) -> None:
    before = daemon.config.read_text()
    for wrong in ('"deno"', '"Bun"', "true", '["bun"]', '"/usr/bin/node"'):
        daemon.config.write_text(f"{before}\n[source.project]\nruntime = {wrong}\n")
        with pytest.raises(Exception, match="runtime") as raised:
            daemon.reload()
        told = str(raised.value)
        line = before.count("\n") + 3
        assert f":{line}" in told or f"line {line}" in told, told
        assert "bun" in told
        assert "node" in told
    daemon.config.write_text(before)
    daemon.reload()
    assert NODE.is_file()
