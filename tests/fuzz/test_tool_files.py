"""Odd tool files, assembled at random: loading one gives tools or raises `Broken`, and nothing else."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz.conftest import tried

from toolcelld.worker.loading.finders import ToolSource
from toolcelld.worker.loading.loader import Broken, load

EXAMPLES: int = 50

HEADS = (
    "from toolcell import tool", "from toolcell import *", "import toolcell", "from __future__ import annotations",
    "# -*- coding: latin-1 -*-", "# coding: rot13", "\ufeff", "\0", "\f", "from . import other", "import nowhere",
)  # fmt: skip
DECORATORS = (
    "@tool", "@tool()", "@tool(name='x')", "@tool(name='../x')", "@tool(name='x' * 500)", "@tool(timeout='never')",
    "@tool(memory=-1)", "@tool(unknown=object())", "@tool(description='\ud800')", "@staticmethod", "@property",
    "@tool\n@tool", "@tool(None)", "@tool(name=7)", "",
)  # fmt: skip
PARAMETERS = (
    "", "a", "a: int", "a: 'Nowhere'", "a: list['f']", "*a: int", "**a: int", "a, /, b", "*, a: int = object()",
    "a: type", "a: dict[object, int]", "a: int = 'x'", "a: (lambda: 1)", "a: 'int' = 1, *b, c: 'str', **d", "self",
    "a: list[list[list[int]]] | None", "a: float = float('nan')", "a: str = '\ud800'", "context: object",
)  # fmt: skip
BODIES = (
    "...",
    "return a",
    "yield 1",
    "await x",
    "nonlocal z",
    "return f",
    '"""Says \ud800."""',
    "'''{x!r:%}'''",
)
TAILS = (
    "raise SystemExit", "raise KeyboardInterrupt", "raise BaseException(b'\\xff')", "del f", "f = 7", "f.__doc__ = 7",
    "f.__name__ = ''", "f.__annotations__ = {'a': f}", "f.__signature__ = 7", "f.__wrapped__ = f", "__all__ = 7",
    "f = type('f', (), {'__getattr__': lambda s, n: s})()", "class f(type): ...", "f.__module__ = None",
    "__name__ = None", "__file__ = 7", "import sys; sys.modules[__name__] = None", "(" * 150, "x = " + "-" * 5000 + "1",
)  # fmt: skip


@st.composite
def functions(draw: st.DrawFn) -> str:
    """A function, or what looks like one."""
    start = draw(st.sampled_from(("def", "async def", "class")))
    name = draw(st.sampled_from(("f", "g", "tool", "default", "_hidden", "\u0192", "print")))
    decorator, parameters = draw(st.sampled_from(DECORATORS)), draw(st.sampled_from(PARAMETERS))
    return f"{decorator}\n{start} {name}({parameters}):\n    {draw(st.sampled_from(BODIES))}\n"


@st.composite
def sources(draw: st.DrawFn) -> bytes:
    """A file of such parts, which mostly can use our decorator; or bytes."""
    if draw(st.integers(0, 4)) == 0:
        return draw(st.binary(max_size=200))
    part = st.one_of(st.sampled_from(HEADS), functions(), st.sampled_from(TAILS))
    parts = [draw(st.sampled_from(("", "from toolcell import tool"))), *draw(st.lists(part, max_size=6))]
    return "\n".join(parts).encode("utf-8", "surrogatepass")


@tried(EXAMPLES)
@given(content=sources())
def test_an_odd_file_has_tools_or_is_broken(content: bytes, tmp_path: Path) -> None:
    modules = set(sys.modules)
    source = ToolSource(str(tmp_path / "odd.py"), "odd", str(tmp_path), package=False, content=content)
    said = "stage", "message"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a file's own syntax
        try:
            found = load(source, describe=True)
        except Broken as broken:
            said = broken.stage, broken.message
        else:
            assert all(tool.name for tool in found.tools)
        finally:
            for name in set(sys.modules) - modules:
                del sys.modules[name]
            while str(tmp_path) in sys.path:
                sys.path.remove(str(tmp_path))
    assert all(said)
