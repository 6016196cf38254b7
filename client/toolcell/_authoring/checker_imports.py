"""Finds the name that an exception misses among what a file imports for type checkers only."""

from __future__ import annotations

import ast
from collections.abc import Iterator

CAUSES_MAX = 8


def missing_import(error: BaseException) -> str:
    """Return which line of the file imports the name that is missing, and what to do; empty if none does.

    Args:
        error: A `NameError`, or an exception that one has caused. The code that raised it is the file's, so its source is
            what the loader of the file's module gives.
    """
    cause: BaseException | None = error
    for _ in range(CAUSES_MAX):
        if cause is None:
            return ""
        if isinstance(cause, NameError) and type(cause.name) is str:
            break
        cause = cause.__cause__ or cause.__context__
    else:
        return ""
    try:
        lines = [node.lineno for node in _imports(ast.parse(_source(cause))) if cause.name in _names(node)]
    except Exception:  # noqa: BLE001  # the loader may be another library's
        return ""
    if not lines:
        return ""
    return (
        f"line {lines[0]} imports {cause.name} under `if TYPE_CHECKING:`, which is not there when the file runs: "
        "import it outside of that"
    )


def _source(error: BaseException) -> str:
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    known = frame.tb_frame.f_globals if frame is not None else {}
    return known["__loader__"].get_source(known["__name__"]) or ""


def _imports(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports within `if TYPE_CHECKING:`, however the file calls that constant's module."""
    for branch in ast.walk(tree):
        if isinstance(branch, ast.If) and ast.unparse(branch.test).rpartition(".")[2] == "TYPE_CHECKING":
            for statement in branch.body:
                yield from (
                    node for node in ast.walk(statement) if isinstance(node, ast.Import | ast.ImportFrom)
                )


def _names(node: ast.Import | ast.ImportFrom) -> list[str]:
    return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
