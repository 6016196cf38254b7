"""Importing the package costs little; what is heavy is loaded by who needs it."""

import subprocess
import sys

import pytest

import toolcell

HEAVY = ("anyio", "asyncio", "pydantic", "inspect", "dataclasses", "logging", "grpc", "pathlib", "json")


def loaded_after(statement: str) -> list[str]:
    """Which heavy modules a fresh interpreter has loaded; -S keeps what `site` loads out of it."""
    code = f"import sys; sys.path[:] = {sys.path!r}; {statement}; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    command = [sys.executable, "-S", "-E", "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout.split()


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert loaded_after("import toolcell") == []
    names = "tool, Tool, ToolContext, Abort, ToolError, Denied, Aborted, ToolResult, Image, Link, Content"
    assert loaded_after(f"from toolcell import {names}") == []


def test_decorating_loads_nothing_heavy() -> None:
    assert (
        loaded_after("from toolcell import tool; tool(timeout=1)(lambda: None); tool(args={}, execute=max)")
        == []
    )


def test_loading_tools_does_not_load_grpc() -> None:
    loaded = loaded_after(
        "import toolcell._authoring.discover, toolcell._context.exec, toolcell._context.logs"
    )
    assert "pydantic" in loaded
    assert "grpc" not in loaded


def test_the_client_loads_anyio_only_for_its_blocking_form() -> None:
    assert "anyio" not in loaded_after("import toolcell.client")
    assert "anyio" in loaded_after("import toolcell.client.blocking")


def test_what_is_promised_is_there_and_nothing_else() -> None:
    assert sorted(toolcell.__all__) == toolcell.__all__
    for name in toolcell.__all__:
        assert getattr(toolcell, name) is not None
    with pytest.raises(AttributeError, match="'toolcell' has no attribute 'Tol'"):
        getattr(toolcell, "Tol")  # noqa: B009  checkers would refuse the attribute


def test_the_decorator_and_the_test_double_need_pydantic_alone() -> None:
    """A project's own environment has them without Toolcell's dependencies."""
    others = (
        "anyio",
        "grpc",
        "google",
        "rich",
        "typer",
        "uvloop",
        "packaging",
        "toolcelld",
        "toolcell_proto",
    )
    block = f"[sys.modules.__setitem__(name, None) for name in {others!r}]"  # None makes an import fail
    use = "from toolcell import tool; from toolcell.testing import FakeContext; FakeContext().log.info('x')"
    assert "pydantic" in loaded_after(f"{block}; {use}")
