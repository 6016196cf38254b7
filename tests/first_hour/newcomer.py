"""A person's machine with nothing on it: a home, a Python, and what they type, which becomes a page.

The home is a temporary directory, the environment has what registries and locales need and nothing else, and no path
leads to this tree: Toolcell is there as far as its wheel has been installed.
"""

from __future__ import annotations

import functools
import http.server
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

__all__ = ["HOME", "Newcomer", "newcomer"]

HOME: Final = "/home/ada"
"""What the page says in place of the temporary home."""
PORT: Final = "8080"
COMMAND_SECONDS_MAX: Final = 240  # an installation from a slow registry
END_SECONDS_MAX: Final = 30
# How packages are fetched here, which is the machine's affair and not the person's.
PASSED: Final = re.compile(r"(?i)PIP_.*|UV_.*|.*_PROXY|SSL_CERT_.*|REQUESTS_CA_BUNDLE|LC_ALL")


@dataclass
class Newcomer:
    """A person at a terminal, and the page of what they did."""

    home: Path
    port: int
    page: list[str] = field(default_factory=list[str])
    directory: Path = field(init=False)

    def __post_init__(self) -> None:
        self.directory = self.home

    @property
    def environment(self) -> dict[str, str]:
        passed = {name: value for name, value in os.environ.items() if PASSED.fullmatch(name)}
        return {
            "UV_CACHE_DIR": str(self.home / ".cache" / "uv"),
            "PIP_NO_COMPILE": "0",  # which means yes: most of what is installed is never imported here
            "LC_ALL": "C.UTF-8",
            "COLUMNS": "100",
            **passed,
            "HOME": str(self.home),
            "PATH": f"{self.home}/venv/bin:/usr/local/bin:/usr/bin:/bin",
            "TMPDIR": str(self.home / "tmp"),
            "XDG_RUNTIME_DIR": str(self.home / "run"),
        }

    def says(self, *lines: str) -> None:
        """Put lines of Markdown onto the page."""
        self.page += [*lines, ""]

    def writes(self, path: str, text: str, kind: str = "python") -> None:
        """Write a file below the current directory, and show it."""
        target = self.directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text.replace(f":{PORT}", f":{self.port}"))
        self.says(f"Save this as `{path}`:", "", f"```{kind}", text.rstrip("\n"), "```")

    def types(self, *lines: str, code: int = 0, quiet: bool = False) -> str:
        """Run commands in the current directory, and show them with what they print.

        Args:
            lines: What is typed. `cd DIR` changes the directory for what follows.
            code: The exit code that the last one has to have; the others have to have 0.
            quiet: Show the commands alone.

        Returns:
            What the last one printed, as the page has it.
        """
        said, shown = "", list[str]()
        for line in lines:
            done = subprocess.run(
                ["bash", "-c", line],
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=COMMAND_SECONDS_MAX,
                check=False,
            )
            said = self._as_shown(done.stdout)
            expected = code if line == lines[-1] else 0
            assert done.returncode == expected, f"{line}: exit {done.returncode}\n{done.stdout}"
            if match := re.fullmatch(r"cd (\S+)", line):
                self.directory = (self.directory / match[1].replace("~", str(self.home))).resolve()
            shown += [f"$ {self._as_shown(line)}", *([] if quiet else said.splitlines())]
        self.says("```console", *shown, "```")
        return said

    def _as_shown(self, text: str) -> str:
        text = text.replace(str(self.home), HOME).replace(f":{self.port}", f":{PORT}")
        return "\n".join(line.rstrip() for line in text.splitlines())

    def run_python(self, code: str) -> str:
        """Run code with the person's Python, which is not part of the page; what it printed."""
        done = subprocess.run(
            [self.home / "venv/bin/python", "-c", code],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            check=True,
        )
        return done.stdout

    def end(self) -> None:
        """End the daemon that their commands have started; it is found by its socket, which no other daemon has."""
        for entry in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                pid = int(entry.name)
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if b"toolcelld" in words and os.fsencode(self.home / "run/toolcell/daemon.sock") in words:
                    descriptor = os.pidfd_open(pid)
                    signal.pidfd_send_signal(descriptor, signal.SIGTERM)
                    ended, _, _ = select.select([descriptor], [], [], END_SECONDS_MAX)
                    os.close(descriptor)
                    assert ended, f"the daemon {pid} does not end"


class _Prices(http.server.BaseHTTPRequestHandler):
    """A service of the person's machine."""

    def do_GET(self) -> None:
        body = json.dumps({"cents": 250}).encode()
        self.send_response(200 if self.path == "/ABC-001" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  as its base has it
        """Say nothing."""


@contextmanager
def newcomer() -> Generator[Newcomer]:
    """Give a new home, with Python and a service on loopback; what has been started there is ended, and it is removed."""
    with (
        tempfile.TemporaryDirectory(prefix="tc-", dir="/var/tmp") as place,
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Prices) as server,
    ):
        threading.Thread(target=functools.partial(server.serve_forever, 0.05), daemon=True).start()
        home = Path(place) / "home"
        for name in ("tmp", "run"):
            (home / name).mkdir(parents=True, mode=0o700)
        python = Path(sys.executable).resolve()  # not that of an environment
        person = Newcomer(home, server.server_port)
        subprocess.run(
            [python, "-m", "venv", home / "venv"],
            check=True,
            env=person.environment,
            timeout=COMMAND_SECONDS_MAX,
        )
        try:
            yield person
        finally:
            person.end()
            server.shutdown()
