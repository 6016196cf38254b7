"""Which call is shown for an id."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.daemon.records.kept import ended

from toolcelld.rpc.operators.history import History

pytestmark = pytest.mark.anyio


async def test_of_several_calls_with_one_id_the_newest_is_shown() -> None:
    recent = [ended("c-1", session_id="s-2"), ended("c-1", session_id="s-1"), ended("c-2", session_id="s-1")]
    daemon: Any = SimpleNamespace(sessions=SimpleNamespace(all=(), recent=recent))
    assert (await History(daemon).call("c-1")).call.session_id == "s-2"
