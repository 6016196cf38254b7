"""The packages of cells: builds the environments that workers need, and notes which of what is kept they use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from toolcelld.catalog.describing.relisting import Listed
from toolcelld.catalog.discovery.sources import ToolFile, project_directory
from toolcelld.environments.builder import Environments
from toolcelld.environments.kept import Kept, Place
from toolcelld.environments.packages import manifest_above, manifest_of_packages
from toolcelld.event_log import LogLine
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.pool.shared_worker import SharedWorker
from toolcelld.pool.worker import Worker

TEXT_CHARACTERS_MAX = 500


class CellPackages:
    """What a cell needs besides its file.

    Args:
        environments: Builds the environments of tools in Python.
        kept: Hears of each use.
        directory: That of the packages of tools in TypeScript and JavaScript.
        tell: Called with a tool file and what is done for it now; with an empty text when that has ended.
        log: Takes what a server prints outside of a call.
        on_listed: Takes the tools that a server has; see `SharedWorker`.
    """

    def __init__(
        self,
        environments: Environments,
        kept: Kept,
        *,
        directory: str,
        tell: Callable[[str, str], None],
        log: Callable[[LogLine], None],
        on_listed: Callable[[ToolFile, Listed], None] = lambda _, __: None,
    ) -> None:
        self._environments = environments
        self._kept = kept
        self._directory = directory
        self._tell = tell
        self._log = log
        self._on_listed = on_listed
        self.preparing: dict[str, str] = {}
        """The mutable state: by tool file, what is done for its environment now."""

    def is_built(self, spec: CellSpec) -> bool:
        """Whether the environment of a spec's requirements is there."""
        return self._environments.built(spec.requirements) is not None

    def make_worker(self, name: str, spec: CellSpec, on_change: Callable[[Worker], None]) -> Worker:
        """Return a worker that prepares its spec when it starts."""
        if not spec.requirements:  # else `prepare` does, which may have to build it first
            for place in self.places(spec):
                asks = spec.file.path if spec.is_server else manifest_above(spec.file.directory, "/")
                self._kept.used(place, asks)
        if spec.is_server:
            return SharedWorker(name, spec, on_change, self.prepare, self._log, self._on_listed)
        return Worker(name, spec, on_change, self.prepare)

    async def prepare(self, spec: CellSpec) -> CellSpec:
        """Return a spec with the environment of its requirements. Raises `BuildError`."""
        interpreter = self._environments.built(spec.requirements)
        if interpreter is None:
            names = ", ".join(spec.requirements.packages)
            project = project_directory(spec.file)
            self._begin(spec.file.path, f"installing packages for {spec.file.stem}: {names}")
            try:
                interpreter = await self._environments.get(
                    spec.requirements, (project, spec.project or project, spec.directory)
                )
            finally:
                self.preparing.pop(spec.file.path, None)
                self._tell(spec.file.path, "")
        for place in self.places(spec):
            self._kept.used(place, spec.file.path, spec.file.content)
        return spec.beside(interpreter)

    def places(self, spec: CellSpec) -> Iterator[Place]:
        """Yield the directories of environments and packages that are kept for a spec."""
        if spec.requirements:
            if (interpreter := self._environments.built(spec.requirements)) is not None:
                yield "environment", os.path.basename(interpreter.prefix)
        elif spec.file.scripts:
            manifest = manifest_of_packages(spec.file.path, spec.file.scripts)
            yield "packages", manifest.key(manifest.locks[0])
        elif spec.interpreter is not None and spec.interpreter.engine:
            for path in spec.interpreter.packages:
                directory, name = os.path.split(os.path.dirname(path))
                if directory == self._directory:
                    yield "packages", name

    def _begin(self, path: str, text: str) -> None:
        self.preparing[path] = text[:TEXT_CHARACTERS_MAX]
        self._tell(path, self.preparing[path])
