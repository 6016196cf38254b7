"""MCP servers of PyPI and npm, as they are: adopted from one `.mcp.json`, installed, and then without a registry.

    python -m tests.public.servers      # docs/public-servers.md, on standard output

Each is compared with itself, spoken to by the client of the MCP SDK without the daemon: its tools, and what calls of them
return, in each sandbox. None of their code is in this repository; they are installed by the daemon, as `toolcell prepare`
does, from the registries that the environment names.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from mcp import Client, MCPError, StdioServerParameters, types
from tests.conftest import descendants
from tests.daemons import RunningDaemon, running_daemon
from tests.engines import NODE

from toolcell._servers.load import DESCRIPTION_BYTES_MAX, HINTS, name_of
from toolcell.client import ImageData, Outcome, Session, Text
from toolcell_proto.v1 import operator_pb2

__all__ = [
    "PAGE", "SERVERS", "PublicServer", "command_of", "environment", "forget", "installed", "lay_out", "page", "placed", "pss_bytes",
    "seen", "settled", "spoken_to",
]  # fmt: skip

HERE: Final = Path(__file__).parent
PAGE: Final = HERE.parent.parent / "docs" / "public-servers.md"
UV: Final = str(Path(sys.executable).parent / "uv")
REGISTRIES: Final = (
    "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "PIP_INDEX_URL", "UV_DEFAULT_INDEX", "npm_config_registry", "HTTPS_PROXY", "NO_PROXY",
)  # fmt: skip
"""How this machine reaches the registries, where its environment says."""
CERTIFICATES: Final = "/etc/ssl/certs/ca-certificates.crt"
"""Those of the machine, for an environment that names none."""
NOWHERE: Final = "http://127.0.0.1:1"
PROJECT: Final = "${CLAUDE_PROJECT_DIR}"
SANDBOXES: Final = ("strict", "baseline")
CONFIG: Final = """trust = "all"
[environments]
uv = "{uv}"
[daemon]
load_timeout = "60s"
workers = 32
[defaults]
sandbox = "{sandbox}"
"""
MEASURED: Final = 3
"""The last columns of the page, whose classes depend on the machine."""

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PublicServer:
    """An entry of servers.toml, where its fields are explained."""

    name: str
    command: tuple[str, ...]
    program: str
    calls: tuple[Json, ...] = field(hash=False)
    env: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    first: Json | None = field(default=None, hash=False)
    network: Sequence[str] = field(default=(), hash=False)
    more: Sequence[str] = field(default=(), hash=False)
    writes: str = ""
    remark: str = ""
    sample: bool = False

    @property
    def entry(self) -> Json:
        """What a host's file has."""
        program, *arguments = self.command
        return {"command": program, "args": arguments, **({"env": dict(self.env)} if self.env else {})}

    @property
    def package(self) -> str:
        """The package and its version."""
        return next(word for word in self.command if re.search(r"@\d|==\d", word))


@dataclass(frozen=True, slots=True)
class Needs:
    """What a server needs.

    Attributes:
        tools: How many it lists.
        section: Its source in the configuration.
        memory_bytes: Of its cell, each shared page in parts.
        tasks: Processes and threads of its cell.
        seconds: From its first call to the result.
    """

    tools: int
    section: Mapping[str, Any]
    memory_bytes: int
    tasks: int
    seconds: float


SERVERS: Final = tuple(
    PublicServer(command=tuple(entry.pop("command")), calls=tuple(entry.pop("calls")), **entry)
    for entry in tomllib.loads((HERE / "servers.toml").read_text(encoding="utf-8"))["server"]
)


def environment() -> dict[str, str]:
    """How a daemon reaches the registries, and node."""
    found = {name: os.environ[name] for name in REGISTRIES if name in os.environ}
    certificates = os.environ.get("PIP_CERT", CERTIFICATES)
    if os.path.exists(certificates):
        found = {"SSL_CERT_FILE": certificates, "NODE_EXTRA_CA_CERTS": certificates, **found}
    npm = shutil.which("npm")
    places = [*([os.path.dirname(npm)] if npm else []), str(NODE.parent), os.environ["PATH"]]
    return {**found, "PATH": os.pathsep.join(places)}


def placed(value: Any, project: Path) -> Any:
    """A value of servers.toml with the directory of the project in place of its name."""
    return json.loads(json.dumps(value).replace(PROJECT, str(project)))


async def seen(daemon: RunningDaemon, servers: Sequence[PublicServer]) -> tuple[dict[str, Needs], list[str]]:
    """Adopt, install and call servers; return what each needs, and where one is another than without the daemon.

    The daemon reaches the registries by `environment`, and ends with one that reaches none.
    """
    shipped = lay_out(daemon.project, servers)
    adopted = await installed(daemon, servers)
    assert {state.split()[0] for state in (await prepared(daemon)).values()} == {"present"}
    daemon.stop()
    daemon.environment |= dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "npm_config_registry"), NOWHERE)
    daemon.launch()
    found: dict[str, Needs] = {}
    direct: dict[str, tuple[list[Json], list[Json]]] = {}
    faults: list[str] = []
    for sandbox in SANDBOXES:
        configure(daemon, adopted, sandbox)
        await asyncio.to_thread(daemon.until_described, {server.name for server in servers})
        async with daemon.connect() as session:
            faults += [f"{sandbox}: {problem}" for problem in session.catalog.problems]
            for server in servers:
                needs = await _of(daemon, session, server, tomllib.loads(adopted)["source"][server.name])
                if server.name not in direct:  # now that it is installed and has written what it writes
                    direct[server.name] = await _said(server, daemon)
                    found[server.name] = needs
                differences = _differences(session, server, daemon.project, *direct[server.name])
                faults += [f"{sandbox}: {server.name}: {difference}" async for difference in differences]
                if server.writes and not (daemon.project / server.writes).exists():
                    faults.append(f"{sandbox}: {server.name} has not written {server.writes}")
    _command(daemon, "return", "claude")
    assert (daemon.project / ".mcp.json").read_bytes() == shipped
    return found, faults


def lay_out(project: Path, servers: Sequence[PublicServer]) -> bytes:
    """Write the file of the hosts and a repository into a project; return the content of the file."""
    content = json.dumps({"mcpServers": {server.name: server.entry for server in servers}}, indent=1)
    (project / ".mcp.json").write_text(content)
    subprocess.run(["git", "init", "-q", "-b", "main", str(project / "repository")], check=True)
    return content.encode()


async def installed(daemon: RunningDaemon, servers: Sequence[PublicServer]) -> str:
    """Adopt the servers of the project's file and install them; return the configuration that has them."""
    adopted = adopt(daemon)
    configure(daemon, adopted, SANDBOXES[0])
    states = await prepared(daemon)
    assert {name: state.split()[0] for name, state in states.items()} == {
        server.name: "installed" for server in servers
    }, states
    return adopted


def adopt(daemon: RunningDaemon) -> str:
    """Adopt the servers of the project's file; return the configuration that has them."""
    _command(daemon, "adopt", "claude", "--yes")
    assert set(json.loads((daemon.project / ".mcp.json").read_text())["mcpServers"]) == {"toolcell"}
    return (daemon.directory / ".config" / "toolcell" / "config.toml").read_text()


def _command(daemon: RunningDaemon, verb: str, *words: str) -> None:
    found = subprocess.run(
        [sys.executable, "-P", "-m", "toolcell.cli", "mcp", verb, *words, "--project"],
        cwd=daemon.project,
        env={"PATH": os.environ["PATH"], "HOME": str(daemon.directory), "TOOLCELL_SOCKET": daemon.socket},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr


def configure(daemon: RunningDaemon, adopted: str, sandbox: str) -> None:
    """Have a daemon read a configuration with the servers in a sandbox."""
    daemon.config.write_text(CONFIG.format(uv=UV, sandbox=sandbox) + adopted)
    daemon.reload()


async def prepared(daemon: RunningDaemon) -> dict[str, str]:
    """Install what the servers need; return how it stands with each."""
    request = operator_pb2.PrepareRequest(directory=str(daemon.project))
    async with daemon.operate() as client:
        answers = client.watch(client.operator.Prepare, request)
        return {Path(it.path).stem: f"{it.state} {it.message}" async for it in answers}


def forget(daemon: RunningDaemon) -> None:
    """Remove what a daemon that has ended had installed."""
    for name in ("environments", "packages"):
        shutil.rmtree(daemon.state / name, ignore_errors=True)


async def _of(daemon: RunningDaemon, session: Session, server: PublicServer, section: Json) -> Needs:
    """Call a server for the first time, and look at its cell."""
    tools = [tool for tool in session.catalog.tools.values() if tool.scope == server.name]
    began = asyncio.get_running_loop().time()
    first = await _called(session, server, server.first or server.calls[0], daemon.project)
    seconds = asyncio.get_running_loop().time() - began
    listed = daemon.ask(
        "Operator/ListWorkers", operator_pb2.ListWorkersRequest(), operator_pb2.ListWorkersResponse
    )
    (worker,) = [it for it in listed.workers if it.worker_id == first.facts.worker_id]
    cell = [worker.keeper_pid, *descendants(worker.keeper_pid)]
    memory = sum(map(pss_bytes, cell))
    return Needs(len(tools), section, memory, sum(map(_tasks, cell)), seconds)


async def _called(session: Session, server: PublicServer, call: Json, project: Path) -> Outcome:
    return await session.call(name_of(server.name, call["tool"]), placed(call["arguments"], project))


def pss_bytes(pid: int) -> int:
    """The memory of a process; none of one that has ended meanwhile, or whose memory is not for this user to see."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0) * 1024
    return 0


def _tasks(pid: int) -> int:
    with suppress(OSError):
        return len(os.listdir(f"/proc/{pid}/task"))
    return 0


def command_of(server: PublicServer, daemon: RunningDaemon) -> list[str]:
    """The command of a server that a daemon has installed, without the daemon; `env` sets its variables."""
    (program,) = daemon.state.glob(server.program)
    node = shutil.which("node", path=environment()["PATH"])  # the one that its cells find
    assert node is not None
    arguments = server.command[server.command.index(server.package) + 1 :]
    words = [*([node] if "node_modules" in server.program else ()), str(program), *arguments]
    named = ["env", *(f"{name}={value}" for name, value in server.env.items()), *words]
    return cast("list[str]", placed(named, daemon.project))


def quiet(command: Sequence[str], daemon: RunningDaemon) -> list[str]:
    """A command whose stderr goes to a file beside the daemon's log, as that of its cells goes to the daemon."""
    return ["sh", "-c", 'exec "$@" 2>>"$0"', str(daemon.directory / "servers.log"), *command]


@asynccontextmanager
async def spoken_to(server: PublicServer, daemon: RunningDaemon) -> AsyncGenerator[Client]:
    """Speak to a server without the daemon, as a host that offers what Toolcell offers."""
    command, *arguments = quiet(command_of(server, daemon), daemon)
    variables = {"PATH": os.environ["PATH"], "HOME": str(daemon.directory)}
    parameters = StdioServerParameters(command=command, args=arguments, env=variables, cwd=daemon.project)

    async def roots(_: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root.model_validate({"uri": daemon.project.as_uri()})])

    async def asked(_: Any, __: Any) -> types.ErrorData:
        return types.ErrorData(code=-1, message="nothing is answered here")

    options: Json = {"list_roots_callback": roots, "elicitation_callback": asked, "sampling_callback": asked}
    async with Client(parameters, mode="legacy", **options) as client:
        yield client


async def _said(server: PublicServer, daemon: RunningDaemon) -> tuple[list[Json], list[Json]]:
    """What a server lists and returns without the daemon."""
    tools: list[Json] = []
    async with spoken_to(server, daemon) as client:
        page = await client.list_tools()
        tools += map(_dumped, page.tools)
        while page.next_cursor:
            page = await client.list_tools(cursor=page.next_cursor)
            tools += map(_dumped, page.tools)
        first = server.first or server.calls[0]
        _, *results = [
            await _returned(client, call["tool"], placed(call["arguments"], daemon.project))
            for call in (first, *server.calls)
        ]
    return [tool for tool in tools if tool["name"] not in server.more], results


async def _returned(client: Client, tool: str, given: Json) -> Json:
    """What a call returns; an error of the protocol as Toolcell tells of it."""
    try:
        return _dumped(await client.call_tool(tool, given))
    except MCPError as error:
        text = f"{error.error.message} (code {error.error.code})"
        return {"content": [{"type": "text", "text": text}], "isError": True}


def _dumped(value: Any) -> Json:
    return cast("Json", value.model_dump(mode="json", by_alias=True, exclude_unset=True))


async def _differences(
    session: Session, server: PublicServer, project: Path, tools: Sequence[Json], results: Sequence[Json]
) -> AsyncIterator[str]:
    """Yield what a server says or does otherwise through the daemon."""
    ours = {name: tool for name, tool in session.catalog.tools.items() if tool.scope == server.name}
    names = {name_of(server.name, tool["name"]) for tool in tools}
    if set(ours) != names:
        yield f"the tools {sorted(set(ours) ^ names)}"
    for theirs in tools:
        if (our := ours.get(name_of(server.name, theirs["name"]))) is not None:
            for part, expected in _expected(theirs).items():
                if getattr(our, part) != expected:
                    yield f"{our.name}.{part}: {getattr(our, part)!r}, and without the daemon {expected!r}"
    for call, theirs in zip(server.calls, results, strict=True):
        outcome = await _called(session, server, call, project)
        content = [
            (type(block), getattr(block, "text", "") or getattr(block, "data", b""))
            for block in outcome.content
        ]
        found = content, outcome.details, outcome.ok
        expected = [*_content(theirs)], theirs.get("structuredContent"), not theirs.get("isError", False)
        if found != expected:
            yield f"{call['tool']} returned {outcome!r}, and without the daemon {theirs!r}"


def _expected(theirs: Json) -> Json:
    """The attributes of a tool as Toolcell has them."""
    hints: Json = theirs.get("annotations") or {}
    said = theirs.get("description") or theirs.get("title") or theirs["name"]
    output = theirs.get("outputSchema")
    return {
        "input_schema": {"properties": {}, **_schema(theirs["inputSchema"]), "type": "object"},
        "output_schema": _schema(output) if output else None,
        "title": " ".join((theirs.get("title") or hints.get("title") or "").split()),
        **({"description": said} if len(said.encode()) <= DESCRIPTION_BYTES_MAX else {}),
        **{option: hints[hint] for hint, option in HINTS.items() if isinstance(hints.get(hint), bool)},
    }


def _schema(schema: Json) -> Json:
    return {key: value for key, value in schema.items() if key != "$schema"}


def _content(result: Json) -> Iterator[tuple[type, object]]:
    """The blocks of a result as the client has them; only of the types that the calls return."""
    for block in result["content"]:
        if block["type"] == "text":
            yield Text, block["text"]
        else:
            assert block["type"] == "image", block
            yield ImageData, base64.b64decode(block["data"])


HEAD: Final = """# Public servers

What MCP servers of PyPI and npm need that are [adopted](mcp-servers.md#servers-that-agents-have) from one `.mcp.json` as they are.
`make test-servers` installs each, starts it without the network, and compares this page; `make public-servers` writes it.
Each has the same tools, content and structured content as without Toolcell, in `strict` and in `baseline`; `everything` has one tool more for hosts that open addresses, which Toolcell does not.

- Network: the hosts that its calls need, `*` for those of the addresses that a call names; it starts without them.
- Secrets and variables: what its entry set, as it is adopted.
- Writes: what it has made in the project.
- Memory, tasks and first result: of its cell after the call in `strict`, on a machine with other work, rounded up to a power of two; tasks are processes and threads, with those of Toolcell.

| Server | Package | Tools | Network | Secrets | Variables | Writes | Memory | Tasks | First result |
|---|---|---|---|---|---|---|---|---|---|
"""


def page(found: Mapping[str, Needs]) -> str:
    """Return the page for what was found."""
    return HEAD + "".join(f"| {' | '.join(_row(server, found[server.name]))} |\n" for server in SERVERS)


def _row(server: PublicServer, needs: Needs) -> Iterator[str]:
    remark = f", {server.remark}" if server.remark else ""
    command: list[str] = needs.section["mcp"]
    set_there = command[1 : next(at for at, word in enumerate(command) if word in ("npx", "uvx"))]
    yield server.name
    yield f"`{server.package}`"
    yield f"{needs.tools}{remark}"
    for words in (
        server.network,
        needs.section.get("secrets", ()),
        [word.partition("=")[0] for word in set_there],
        [server.writes] if server.writes else [],
    ):
        yield ", ".join(f"`{word}`" for word in words) or "–"
    yield f"{_above(needs.memory_bytes / 2**20, 16)} MiB"
    yield str(_above(needs.tasks, 8))
    yield f"{_above(needs.seconds, 1)} s"


def _above(figure: float, least: int) -> int:
    """The next power of two, from a least one."""
    return least if figure <= least else _above(figure, 2 * least)


def settled(text: str) -> list[list[str]]:
    """The cells of a page without those that depend on the machine."""
    return [line.split(" | ")[:-MEASURED] for line in text.splitlines() if line.startswith("|")]


async def main() -> None:
    with running_daemon(environment=environment()) as daemon:
        try:
            found, faults = await seen(daemon, SERVERS)
            print(page(found), end="")
            print(*faults, sep="\n", file=sys.stderr)
        finally:
            daemon.stop()
            forget(daemon)


if __name__ == "__main__":
    asyncio.run(main())
