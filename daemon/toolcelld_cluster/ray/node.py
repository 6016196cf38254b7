"""What runs on each node of a Ray cluster: an actor that keeps a toolcelld as its child.

The daemon gets an environment of its own, so that its cells find nothing of Ray's, and reads its end from its standard input:
when the actor ends, in whatever way, the daemon drains and ends too. A daemon that ends by itself is started again.
"""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from toolcell import _paths
from toolcelld.remote.certificates import NAMES, PLACE
from toolcelld_cluster.environment import clean

START_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.05
PAUSE_SECONDS: Final = (1.0, 30.0)
"""Before a daemon that has ended is started again: twice as long each time, up to the second one."""
LOG_BYTES: Final = 2000
"""Of the end of the log, for a daemon that does not start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """What a daemon is started with."""

    name: str
    address: str  # HOST:PORT
    state: str  # a directory for the states of such daemons; empty for one beside the user's own
    drain_seconds: float


class NodeFault(Exception):
    """The daemon of a node does not serve; the text says why."""


class NodeDaemon:
    """The actor; its methods run in threads."""

    def __init__(self, options: NodeOptions) -> None:
        self._options = options
        base = options.state or f"{_paths.state_directory()}-cluster"
        self._place = os.path.join(base, options.name)
        self._log = os.path.join(self._place, "daemon.log")
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._digest = ""  # of the files that it was started with
        self._ends = threading.Event()
        self._watch = threading.Thread(target=self._keep, name="toolcelld", daemon=True)

    def serve(self, files: Mapping[str, bytes], volumes: Mapping[str, str]) -> dict[str, str]:
        """Start the daemon unless it runs with these files, wait until it listens, and return which volumes are here.

        Raises:
            NodeFault: It does not start.
        """
        digest = hashlib.sha256(b"\0".join(files[name] for name in sorted(files))).hexdigest()
        with self._lock:
            if self._process is not None and self._digest != digest:
                self._stop()
            if self._process is None or self._process.poll() is not None:
                self._write(files)
                self._digest = digest
                self._start()
            if not self._watch.is_alive():
                self._watch.start()
            process = self._process
        assert process is not None
        self._wait(process)
        return {name: path for name, path in volumes.items() if os.path.isdir(path)}

    def stop(self) -> None:
        """End the daemon after its drain, and return when it has ended."""
        self._ends.set()
        with self._lock:
            if self._process is not None:
                self._stop()

    def pid(self) -> int:
        """Return the process of the daemon; 0 for none."""
        return self._process.pid if self._process is not None and self._process.poll() is None else 0

    def _keep(self) -> None:
        """Start a daemon again that has ended."""
        pause = PAUSE_SECONDS[0]
        while not self._ends.is_set():
            process = self._process
            if process is not None:
                begun = time.monotonic()
                process.wait()
                if time.monotonic() - begun > PAUSE_SECONDS[1]:
                    pause = PAUSE_SECONDS[0]
            if self._ends.wait(pause):
                return
            pause = min(2 * pause, PAUSE_SECONDS[1])
            with self._lock:
                if self._process is process and not self._ends.is_set():
                    self._start()

    def _start(self) -> None:
        options = self._options
        command = [
            *(sys.executable, "-P", "-m", "toolcelld"),
            *("--socket", os.path.join(self._place, "d.sock"), "--state", self._place),
            *("--listen", options.address, "--node", options.name),
            *("--confined", "--life-line", "--drain", str(options.drain_seconds)),
        ]
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd="/",
                env=clean(os.environ),
                start_new_session=True,
            )

    def _stop(self) -> None:
        process, self._process = self._process, None
        assert process is not None
        process.terminate()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        host, _, port = self._options.address.rpartition(":")
        deadline = time.monotonic() + START_SECONDS
        while process.poll() is None:
            try:
                socket.create_connection((host.strip("[]"), int(port)), timeout=1).close()
            except OSError as error:
                if time.monotonic() > deadline:
                    raise NodeFault(
                        f"its daemon does not listen on {self._options.address}: {error}"
                    ) from None
            else:
                return
            time.sleep(LOOK_SECONDS)
        with open(self._log, "rb") as log:
            log.seek(max(os.fstat(log.fileno()).st_size - LOG_BYTES, 0))
            said = log.read().decode(errors="replace").strip()
        raise NodeFault(f"its daemon ended with status {process.returncode}: {said or 'it said nothing'}")

    def _write(self, files: Mapping[str, bytes]) -> None:
        os.makedirs(self._place, mode=0o700, exist_ok=True)
        os.makedirs(os.path.join(self._place, PLACE), mode=0o700, exist_ok=True)
        for name in NAMES.values():
            path = os.path.join(self._place, PLACE, name)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
                file.write(files[name])
