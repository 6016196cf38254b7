"""The entry of a zygote, and of an interpreter that a cell executes.

    python -I …/worker/__main__.py CONTROL ROOT…              a zygote, by the daemon's own interpreter
    python -I …/worker/__main__.py immortal CONTROL ROOT…     the same, which makes its objects immortal
    python -I -S …/worker/__main__.py cell FACTS ROOT…        a worker in a confined cell, by another interpreter

This is run as a file and not as a module, because the interpreter may be one that the user chose, without this
package installed. `toolcelld` and `toolcell` are then imported from the daemon's ROOTs; every other module is
imported from that interpreter's own installation.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

OURS = ("toolcell", "toolcelld")


class _Roots:
    """A finder for our two packages, and only for them, in the daemon's directories."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = list(roots)

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,  # the import system passes it
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in OURS:
            return None
        return importlib.machinery.PathFinder.find_spec(name, self._roots, target)


def main() -> None:
    word, *rest = sys.argv[1:]
    executed, immortal = word == "cell", word == "immortal"
    roots = rest[1:] if executed or immortal else rest
    sys.meta_path.insert(0, _Roots(roots))
    if executed:
        _resume(rest[0])
        return
    if importlib.util.find_spec("pydantic") is None:
        sys.exit(f"{sys.executable} has no pydantic; install Toolcell there again.")
    fork_hooks: list[Mapping[str, Callable[..., Any] | None]] = []

    def register(**hooks: Callable[..., Any] | None) -> None:
        fork_hooks.append(hooks)

    registered, os.register_at_fork = os.register_at_fork, register
    from toolcelld.worker.zygote import process

    os.register_at_fork = registered
    process.main(int(rest[0] if immortal else word), tuple(roots), fork_hooks, immortal=immortal)


def _resume(facts: str) -> None:
    """Become the worker of the cell."""
    from toolcelld.sandbox import setup
    from toolcelld.worker import packages

    setup.open_standard_streams()
    plan = packages.resume(facts)
    try:
        from toolcelld.worker import main as worker
    except ImportError as error:
        _fail(error)
        sys.exit(70)  # EX_SOFTWARE
    worker.main(plan, resumed=True)


def _fail(error: ImportError) -> None:
    """Report, without the modules that need pydantic, that the environment cannot run a worker."""
    import json
    import struct

    from toolcelld.sandbox.setup import REPORTS

    message = (
        f"{sys.executable} cannot import what checks the arguments of tools: {error}\n"
        f"  To install it there: {sys.executable} -m pip install 'pydantic>=2.10'"
    )
    header = json.dumps({"type": "broken", "stage": "import", "message": message[:2000]}).encode()
    os.write(REPORTS, struct.pack(">II", len(header), 0) + header)


if __name__ == "__main__":
    main()
