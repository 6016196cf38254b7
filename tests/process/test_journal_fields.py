"""A daemon whose standard error is the journal's sends its records to the journal's socket, with fields."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.daemon.systemd.test_journal import read

SECONDS_MAX = 90
MOUNT = 'mount --bind "$1" /run && shift && exec "$@"'

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root puts a socket in the place of the journal's"
)


@pytest.mark.slow
def test_a_daemon_of_a_service_sends_its_records_with_fields() -> None:
    with tempfile.TemporaryDirectory(prefix="tc-") as name:
        place = Path(name)
        (place / "run" / "systemd" / "journal").mkdir(parents=True)
        (place / "mine").mkdir(mode=0o700)
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal,
            (place / "log").open("w") as log,
        ):
            journal.bind(str(place / "run" / "systemd" / "journal" / "socket"))
            journal.settimeout(SECONDS_MAX)
            found = os.fstat(log.fileno())
            within = ("unshare", "--mount", "sh", "-c", MOUNT, "sh", str(place / "run"))
            daemon = subprocess.Popen(
                [*within, sys.executable, "-P", "-m", "toolcelld", "--state", str(place / "state")],
                env={
                    "PATH": os.defpath,
                    "HOME": name,
                    "TOOLCELL_SOCKET": str(place / "mine" / "daemon.sock"),
                    "JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}",
                },
                stdin=subprocess.DEVNULL,
                stderr=log,
            )
            try:
                entries = [read(journal.recv(1 << 20))]
                while " serves " not in entries[-1]["MESSAGE"]:
                    entries.append(read(journal.recv(1 << 20)))
                assert {entry["SYSLOG_IDENTIFIER"] for entry in entries} == {"toolcelld"}
                assert {entry["LOGGER"].partition(".")[0] for entry in entries} <= {"toolcelld", "asyncio"}
                assert (place / "log").read_text() == ""
            finally:
                daemon.send_signal(signal.SIGTERM)
                daemon.wait(SECONDS_MAX)
