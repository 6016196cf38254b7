"""Start a zygote: `python -I …/worker/__main__.py CONTROL ROOT…`.

This is run as a file and not as a module, because the interpreter may be one that the user chose, without this
package installed. `toolcelld` and `toolcell` are then imported from the daemon's ROOTs; every other module is
imported from that interpreter's own installation.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

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
