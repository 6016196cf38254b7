"""The rules in force, and each way in which they change: what people and Placement decide, and what the database has of that.

`Services.ruleset` is the value, and it is replaced here alone. A change counts from the next call on, as permits that were
decided before are decided anew. What is decided stays in force when it cannot be stored; who has decided it is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from toolcelld.catalog.catalog import Catalog, ToolInfo, withholding
from toolcelld.catalog.hooks import Hook, find_hooks, hook_of
from toolcelld.catalog.problem import Problem
from toolcelld.config.load import Config
from toolcelld.config.schema import PROJECT
from toolcelld.policy.decisions import disabled, promises, trust
from toolcelld.policy.decisions.disabled import DisabledTool
from toolcelld.policy.decisions.trust import Trusted
from toolcelld.services import Services
from toolcelld.sessions.registry import Sessions

logger = logging.getLogger(__name__)


class Rules:
    """What replaces the ruleset, and keeps what people decide.

    Args:
        services: The daemon's parts, with the ruleset.
        sessions: The sessions, which decide anew what their calls and workers may have.
    """

    def __init__(self, services: Services, sessions: Sessions) -> None:
        self._services = services
        self._sessions = sessions

    def replace(self, **changed: Any) -> None:
        """Replace parts of the ruleset; permits that were decided by the one before are decided anew."""
        self._services.ruleset = replace(self._services.ruleset, **changed)
        self._sessions.projects.mark_stale()

    async def recall(self, **changed: Any) -> None:
        """Replace parts of the ruleset, and with them what people have decided by what the database has."""
        store = self._services.store
        trusts, taken_out = await trust.recall(store), await disabled.recall(store)
        accepted = await promises.recall(store)
        self.replace(trusts=trusts, disabled=taken_out, promises=accepted, **changed)

    async def hooks(self, config: Config) -> tuple[Hook, ...]:
        """Read the files of the hooks and see which functions they have."""
        loaded: list[Hook] = []
        for name, section, file in await asyncio.to_thread(lambda: list(find_hooks(config))):
            if isinstance(file, Problem):
                hook = Hook(name, section, None, problem=f"{file.path}: {file.message}")
            else:
                hook = hook_of(name, section, file, await self._services.describe(file))
            if hook.problem:
                logger.warning(
                    "The hook %s cannot be used, and its tools are refused: %s", name, hook.problem
                )
            loaded.append(hook)
        return tuple(loaded)

    async def recall_trust(self) -> None:
        """Read which projects are trusted; where that cannot be read, what is known stays."""
        if self._services.store.durable:
            self.replace(trusts=await trust.recall(self._services.store))

    async def trust(self, trusted: Trusted, tools: Iterable[ToolInfo] = ()) -> bool:
        """Trust a project, with what tools of its MCP servers promise. Return whether it was stored."""
        self.replace(trusts=self._services.ruleset.trusts.beside(trusted))
        self.accept(tools)
        return await trust.keep(self._services.store, trusted)

    async def distrust(self, directory: str) -> bool:
        """Revoke the trust in a project. Return whether the decision was stored."""
        self.replace(trusts=self._services.ruleset.trusts.without(directory))
        self._sessions.reconsider()
        return await trust.forget(self._services.store, directory)

    def trust_codes(self, codes: Mapping[str, frozenset[str]]) -> None:
        """Replace the digests of code that Placement trusts, by tenant."""
        if codes != self._services.ruleset.codes:
            self.replace(codes=codes)
            self._sessions.reconsider()

    def accept(self, tools: Iterable[ToolInfo]) -> None:
        """Accept what tools of MCP servers promise now."""
        shown = [tool for tool in tools if tool.file.share is not None]
        if shown:
            self.replace(promises=self._services.ruleset.promises.with_tools(shown))
            promises.keep(self._services.store, shown)

    def settle(self, catalog: Catalog) -> Catalog:
        """Accept the tools of the user's own servers that are new, and withhold what has to be accepted first."""
        known = self._services.ruleset.promises
        served = (tool for tools in catalog.files.values() for tool in tools if tool.file.share is not None)
        own = (tool for tool in served if tool.file.source != PROJECT)
        self.accept(tool for tool in own if known.of(tool) is None and not known.fault_of(tool))
        return withholding(catalog, self._services.ruleset.withheld)

    async def disable(self, tool: DisabledTool) -> bool:
        """Refuse the calls of a tool. Return whether the decision was stored."""
        self.replace(disabled={**self._services.ruleset.disabled, tool.name: tool})
        self._sessions.reconsider()
        return await disabled.keep(self._services.store, tool)

    async def enable(self, name: str) -> bool:
        """Allow the calls of a tool that was disabled. Return whether the decision was stored."""
        known = self._services.ruleset.disabled
        self.replace(disabled={other: tool for other, tool in known.items() if other != name})
        return await disabled.forget(self._services.store, name)
