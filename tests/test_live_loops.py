"""No loop over live state calls out: what is called may change the state, and the loop ends with an exception.

A dictionary that changes during a loop over it raises `RuntimeError`; a list that changes passes over elements. A session
stayed open for ever in this way: its loop over its calls withdrew a question, which ended a call.

Live is what `__init__` makes as a container and another method of the class changes. A loop over it, as a statement or in a
comprehension, may await nothing, yield nothing, and call only what is known to call nothing else; any other loop goes over
a copy: `for call in list(self.calls.values())`. What the check cannot see: a loop over another name for the same container.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
DAEMON = ROOT / "daemon" / "toolcelld"
NOT_ON_THE_LOOP = ("worker", "sandbox", "inspector")
"""Packages whose code runs in processes of one thread without a loop of ours."""
CONTAINERS = frozenset({"dict", "set", "list", "deque", "OrderedDict", "Counter", "defaultdict"})
CHANGES = frozenset({
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "move_to_end", "pop", "popitem", "popleft",
    "remove", "setdefault", "update",
})  # fmt: skip
VIEWS = frozenset({"values", "items", "keys"})
OF_OTHERS = frozenset({"calls", "preparing", "readers", "always"})
"""Live containers of one class that code of another one loops over: `session.calls`, `packages.preparing`, …"""
LEAVES = frozenset({
    # Of values, futures, timers and tasks, whose callbacks are called by the loop, later; and of the kernel's.
    "add", "append", "cancel", "cancelled", "copy", "count", "done", "encode", "endswith", "exception", "find", "get", "index",
    "items", "join", "keys", "lower", "partition", "remove", "replace", "result", "set", "set_exception", "set_result",
    "split", "startswith", "strip", "time", "values",
    "add_reader", "close", "fileno", "fsencode", "fstat", "pread", "read", "remove_reader",
})  # fmt: skip
PURE = frozenset({
    # Functions and methods of ours that compute and change nothing; a name that is here means the same everywhere.
    "about", "awaits", "is_below", "is_clear", "measure", "names_in", "stream", "summary", "_changed_at_ns",
    "_droppable_bytes", "_is_stopped", *dir(builtins),
})  # fmt: skip


class Loop(NamedTuple):
    """A loop over a live container that calls out."""

    place: str
    over: str
    calls: str


def live_of(class_: ast.ClassDef) -> set[str]:
    """The names of the containers that a class makes in `__init__` and changes elsewhere."""
    made: set[str] = set()
    changed: set[str] = set()
    for method in class_.body:
        if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in ast.walk(method):
            if method.name == "__init__":
                if isinstance(node, ast.Assign | ast.AnnAssign) and is_container(node.value):
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    made |= {name for target in targets if (name := own(target))}
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr in CHANGES and (name := own(node.func.value)):
                    changed.add(name)
            elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
                changed.add(own(node.value))
    return made & changed


def is_container(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Dict | ast.List | ast.Set | ast.DictComp | ast.ListComp | ast.SetComp):
        return True
    function = value.func if isinstance(value, ast.Call) else None
    function = function.value if isinstance(function, ast.Subscript) else function
    return isinstance(function, ast.Name) and function.id in CONTAINERS


def own(node: ast.expr) -> str:
    """The name of an attribute of `self`, else nothing."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return node.attr
    return ""


def over(iterated: ast.expr, live: set[str]) -> str:
    """The live container that a loop goes over without a copy, else nothing."""
    if isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Attribute):
        iterated = iterated.func.value if iterated.func.attr in VIEWS else iterated
    if not isinstance(iterated, ast.Attribute):
        return ""
    return iterated.attr if own(iterated) in live or iterated.attr in OF_OTHERS else ""


def called_out(body: list[ast.AST]) -> Iterator[str]:
    for part in body:
        for node in ast.walk(part):
            if isinstance(node, ast.Await | ast.Yield | ast.YieldFrom):
                yield ast.unparse(node)
            elif isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
                if name not in LEAVES | PURE and not name.endswith(("Error", "Info")):
                    yield ast.unparse(node)


def loops(source: str, place: str) -> Iterator[Loop]:
    """The loops of a module that call out of live containers."""
    for class_ in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)):
        live = live_of(class_)
        for node in ast.walk(class_):
            found: list[tuple[ast.expr, list[ast.AST]]] = []
            if isinstance(node, ast.For | ast.AsyncFor):
                found = [(node.iter, [*node.body])]
            elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
                found = [(each.iter, [node.elt, *each.ifs]) for each in node.generators]
            elif isinstance(node, ast.DictComp):
                found = [(each.iter, [node.key, node.value, *each.ifs]) for each in node.generators]
            for iterated, body in found:
                if (name := over(iterated, live)) and (calls := list(called_out(body))):
                    line = f"{place}:{getattr(node, 'lineno', 0)}"
                    yield Loop(line, name, "; ".join(calls))


def test_no_loop_over_live_state_calls_out() -> None:
    found = [
        loop
        for path in sorted(DAEMON.rglob("*.py"))
        if path.relative_to(DAEMON).parts[0] not in NOT_ON_THE_LOOP
        for loop in loops(path.read_text(), str(path.relative_to(ROOT)))
    ]
    assert not found, "\n".join(f"{place}: over {name}, calls {calls}" for place, name, calls in found)


CLASS = """
class Session:
    def __init__(self):
        self.calls = {{}}
        self.fixed = [1]

    def end(self, call):
        self.calls.pop(call)

    async def loop(self):
        {}
"""


@pytest.mark.parametrize(
    ("loop", "seen"),
    [
        ("for call in self.calls.values(): call.stop()", True),
        ("for call in self.calls: await call", True),
        ("for call in self.calls: yield call", True),
        ("found = [call.stop() for call in self.calls]", True),
        ("for call in other.calls.values(): self.stop(call)", True),
        ("for call in list(self.calls.values()): call.stop()", False),
        ("for call in self.calls.values(): call.timer.cancel()", False),
        ("for each in self.fixed: each.stop()", False),
    ],
)
def test_the_check_sees_a_loop_that_calls_out(loop: str, seen: bool) -> None:
    assert bool([*loops(CLASS.format(loop), "m.py")]) is seen
