"""Which pollers gRPC has in a process of ours, each tried in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

IMPORT = """
import os, sys
from toolcell._own_grpc import older_pollers
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


@pytest.mark.parametrize(
    "module", ["toolcelld.program", "toolcell.cli._command_line.app", "toolcell.cli.adapters.mcp"]
)
def test_the_daemon_and_the_command_load_no_grpc_before_they_choose(module: str) -> None:
    out, _ = run(f"import sys, {module}; print('grpc' in sys.modules)")
    assert out == "False"
