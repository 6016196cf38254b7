"""Which pollers gRPC has in the daemon, each tried in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

IMPORT = """
import os, sys
from toolcelld.pollers import older_pollers
with older_pollers():
    chosen = os.environ["GRPC_EXPERIMENTS"]
    import grpc
print(chosen, os.environ.get("GRPC_EXPERIMENTS"))
"""


def run(program: str, **environment: str) -> tuple[str, str]:
    rest = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=rest | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.strip(), done.stderr


def test_grpc_knows_the_pollers_and_a_child_process_inherits_no_setting() -> None:
    out, err = run(IMPORT)
    assert out == "-event_engine_client,-event_engine_listener None"
    assert err == "", "gRPC has no such pollers any more: remove the setting"


def test_what_the_user_sets_stays() -> None:
    out, _ = run(IMPORT, GRPC_EXPERIMENTS="-event_engine_dns")
    assert out == "-event_engine_dns -event_engine_dns"


def test_the_daemon_loads_no_grpc_before_it_chooses() -> None:
    out, _ = run("import sys, toolcelld.program; print('grpc' in sys.modules)")
    assert out == "False"


def test_the_client_loads_no_grpc() -> None:
    out, _ = run(
        "import sys, toolcell.client.blocking, toolcell.cli.adapters.mcp; print('grpc' in sys.modules)"
    )
    assert out == "False"
