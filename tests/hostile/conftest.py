"""One daemon for each profile, kept for all attacks, and the checks that each attack leaves nothing behind.

With xdist every process has daemons of its own; which attacks may run side by side is said in `test_attacks`.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from tests.daemons import RunningDaemon
from tests.hostile.table import ATTACKS, Profile, disk, groups

from toolcell.client import connect

SECRET_VARIABLE: Final = "TOOLCELL_TEST_TOKEN"
ATTACKS_PER_REST: Final = 10
"""The full check waits until the daemon has rebuilt its spare cells, so it is made after this many attacks."""
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
"""Limits for all attacks, so that none of them can exhaust the machine."""


class HostileDaemon(RunningDaemon):
    """A daemon that is attacked, and a tool of another project that must go on working."""

    def __init__(self, directory: Path, profile: Profile) -> None:
        super().__init__(directory)
        self.profile = profile
        self.secret = f"SECRET-OF-DAEMON-{secrets.token_hex(12)}"
        self.environment[SECRET_VARIABLE] = self.secret
        sections = [f"[tool.{attack.name}]\n{_lines(attack.limits)}" for attack in ATTACKS if attack.limits]
        self.config.write_text("\n".join([BASE.format(profile=profile), *sections]))
        self.tool(
            "good",
            "from toolcell import tool\n\n\n@tool\ndef good(word: str) -> str:\n    return word[::-1]\n",
        )
        self._since_rest: list[str] = []

    def known(self) -> dict[str, Any]:
        """What an attack is told of the daemon."""
        return {
            "daemon": self.pid,
            "priority": os.getpriority(os.PRIO_PROCESS, self.pid),
            "daemon_socket": self.socket,
            "daemon_state": str(self.state),
            "daemon_config": str(self.config),
            "daemon_log": str(self.log),
            "daemon_secret": self.secret,
            "disk": disk(),
            "groups": groups(),
        }

    async def check_serves(self) -> None:
        """Fail unless the tool of the other project returns its own result."""
        word = secrets.token_hex(4)
        async with connect(self.socket, daemon="running", directory=self.project) as session:
            outcome = await session.call("good", {"word": word})
        assert outcome.text == word[::-1], outcome

    def check_alive(self) -> None:
        assert self.process is not None
        assert self.process.poll() is None, f"the daemon died:\n{self.log.read_text()}"

    def attacked(self, name: str) -> None:
        """Count an attack; after every tenth, make the full check of what is left in the daemon."""
        self._since_rest.append(name)
        if len(self._since_rest) >= ATTACKS_PER_REST:
            self.check_rest()

    def check_rest(self) -> None:
        """Fail unless the daemon holds no more processes, descriptors and files than before the first attack."""
        names, self._since_rest = self._since_rest, []
        if not names:
            return
        try:
            self.at_rest()
        except pytest.fail.Exception as failure:
            pytest.fail(f"after {', '.join(names)} under {self.profile}: {failure}")


def _lines(values: Mapping[str, Any]) -> str:
    return "".join(f"{key} = {value!r}\n" for key, value in values.items())


@pytest.fixture(scope="session")
def daemon_of() -> Iterator[Callable[[Profile], HostileDaemon]]:
    """The daemon of a profile, started at its first use."""
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
        try:
            for daemon in running.values():
                daemon.check_rest()
        finally:
            for daemon in running.values():
                if daemon.process is not None:
                    daemon.stop()


@pytest.fixture(autouse=True)
def the_world_is_as_before() -> None:
    """Replaces the check of `tests/conftest.py`: the daemons stay; `check_alive`, `check_rest` and `Target.leftovers` do it."""
