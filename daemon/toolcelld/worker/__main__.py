"""Start a zygote: `python -I …/worker/__main__.py CONTROL ROOT…`.

Run as a file and not as a module, because the interpreter may be a user's own, which does not
have this package installed. Then the package and the authoring half are taken from the daemon's
ROOTs, and nothing else from there: everything else must come from that interpreter.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

OURS = ("toolcell", "toolcelld")


class _Roots:
    """Finds our two packages, and only them, below the daemon's own directories."""

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
    control, *roots = sys.argv[1:]
    sys.meta_path.insert(0, _Roots(roots))
    if importlib.util.find_spec("pydantic") is None:
        sys.exit(
            f"{sys.executable} has no pydantic, which checks the arguments of tools.\n"
            f"Install it there: {sys.executable} -m pip install 'pydantic>=2.10'"
        )
    from toolcelld.worker import zygote

    zygote.main(int(control))


if __name__ == "__main__":
    main()
