"""What the doctor says of an engine when Toolcell's own libraries are not built: one remedy, and not to install the engine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from toolcelld.environments.engine import ScriptEngine
from toolcelld.rpc.operators import doctor

pytestmark = pytest.mark.anyio


async def test_libraries_that_are_not_built_are_the_one_thing_to_mend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcelld.worker.engine.SOURCES", str(tmp_path))
    monkeypatch.setattr(doctor, "engine_here", lambda: ScriptEngine("bun", "/opt/bun"))
    ruleset: Any = SimpleNamespace(host_paths=SimpleNamespace(environment={"PATH": ""}, home=str(tmp_path)))
    describer: Any = None  # nothing is described
    finding = await doctor.look_at_engine(ruleset, describer)
    assert finding.state == "missing"
    assert finding.detail == "bun, /opt/bun: Toolcell was built without its libraries for TypeScript"
    assert finding.remedy == "run make engines and install it again"
