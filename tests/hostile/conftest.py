"""One daemon for each profile, kept for all sins, and the check that each of them leaves nothing behind."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from tests.hostile.table import SINS, Profile, disk, groups
from tests.process.conftest import RunningDaemon

from toolcell.client import connect

SECRET_VARIABLE: Final = "TOOLCELL_TEST_TOKEN"
BASE: Final = """
[daemon]
abort_grace = 0.3

[defaults]
sandbox = "{profile}"
timeout = 12
memory = "600MiB"
processes = 150
isolation = "call"
"""
"""Bounds under every sin, also where none is what it is about."""


class HostileDaemon(RunningDaemon):
    """A daemon that bad tools are let loose on, and an innocent tool that must work on beside them."""

    def __init__(self, directory: Path, profile: Profile) -> None:
        super().__init__(directory)
        self.profile = profile
        self.secret = f"SECRET-OF-DAEMON-{secrets.token_hex(12)}"
        self.environment[SECRET_VARIABLE] = self.secret
        sections = [f"[tool.{sin.name}]\n{_lines(sin.limits)}" for sin in SINS if sin.limits]
        self.config.write_text("\n".join([BASE.format(profile=profile), *sections]))
        self.tool(
            "good",
            "from toolcell import tool\n\n\n@tool\ndef good(word: str) -> str:\n    return word[::-1]\n",
        )

    def known(self) -> dict[str, Any]:
        """What an attacker is told of it."""
        return {
            "daemon": self.pid,
            "daemon_socket": self.socket,
            "daemon_state": str(self.state),
            "daemon_config": str(self.config),
            "daemon_log": str(self.log),
            "daemon_secret": self.secret,
            "disk": disk(),
            "groups": groups(),
        }

    async def serves(self) -> None:
        """Fail unless the innocent tool gets its own result."""
        word = secrets.token_hex(4)
        async with connect(self.socket, daemon="running", directory=self.project) as session:
            outcome = await session.call("good", {"word": word})
        assert outcome.text == word[::-1], outcome

    def nobody_is_left(self) -> None:
        """Fail unless it is at rest with nothing of its own grown."""
        assert self.process is not None
        assert self.process.poll() is None, f"the daemon died:\n{self.log.read_text()}"
        self.at_rest()


def _lines(values: Mapping[str, Any]) -> str:
    return "".join(f"{key} = {value!r}\n" for key, value in values.items())


@pytest.fixture(scope="session")
def daemon_of() -> Iterator[Callable[[Profile], HostileDaemon]]:
    """The daemon of a profile, started when it is first wanted."""
    running: dict[Profile, HostileDaemon] = {}
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp") as directory:

        def get(profile: Profile) -> HostileDaemon:
            if (found := running.get(profile)) is not None and found.process is not None:
                return found
            path = Path(directory) / f"{profile}{len(running)}"
            path.mkdir(mode=0o700, exist_ok=True)
            daemon = running[profile] = HostileDaemon(path, profile)
            daemon.start()
            return daemon

        yield get
        for daemon in running.values():
            if daemon.process is not None:
                daemon.stop()


@pytest.fixture(autouse=True)
def the_world_is_as_before() -> None:
    """Not as elsewhere, since the daemons stay and their cells come and go; `nobody_is_left` and `World.marks` look."""
