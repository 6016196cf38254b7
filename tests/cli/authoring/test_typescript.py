"""The command with a tool file in TypeScript, with an engine and without one."""

from __future__ import annotations

import pytest
from tests.cli.conftest import Project
from tests.engines import BUN

TOOL = 'export default { description: "Say it", args: { word: { type: "string" } }, execute: async (args) => args.word }\n'


@pytest.mark.slow
def test_a_file_in_typescript_is_called_and_checked_and_without_an_engine_named(project: Project) -> None:
    (project.tools / "say.ts").write_text(TOOL)
    engine = {"PATH": f"{BUN.parent}:/usr/bin:/bin"}
    called = project.run("call", "./.toolcell/tools/say.ts", "word=hello", env=engine)
    assert (called.code, called.out.strip()) == (0, "hello"), called
    none = {"PATH": str(project.home)}
    without = project.run("check", "./.toolcell/tools/say.ts", env=none)
    assert without.code != 0
    assert "is TypeScript, which bun or node runs, and there is none" in without.out + without.err
    assert "install bun" in without.out + without.err
