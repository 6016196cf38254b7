"""The parts of the daemon that its sessions and their calls use.

`Daemon` makes one value of them and hands it down; nothing that has it knows the daemon, or a session. The ruleset is the
only part that changes: an immutable value, which `Rules` replaces, and which is read here for each decision.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace

from toolcelld.catalog.catalog import ToolInfo
from toolcelld.catalog.describing.description import BrokenFile, Description
from toolcelld.catalog.discovery.sources import ToolFile
from toolcelld.catalog.registry import CatalogRegistry
from toolcelld.catalog.watch import Watch
from toolcelld.config.load import Config
from toolcelld.errors import Refusal
from toolcelld.event_log import DECISION, Broadcast, EventLog, LogLine, OperatorEvent
from toolcelld.files.looks import look
from toolcelld.output.spill import SpillStore
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.policy.permit import cell_of_description
from toolcelld.policy.ruleset import Ruleset
from toolcelld.pool.cell_packages import CellPackages
from toolcelld.pool.describer import Describer
from toolcelld.pool.pool import Pool
from toolcelld.store import Store


@dataclass(slots=True, kw_only=True, eq=False)
class Services:
    """What sessions and calls share."""

    tasks: asyncio.TaskGroup
    store: Store
    ruleset: Ruleset
    packages: CellPackages
    pool: Pool
    describer: Describer
    spills: SpillStore
    catalogs: CatalogRegistry
    watch: Watch
    logbook: EventLog = field(default_factory=EventLog)
    happenings: Broadcast[OperatorEvent] = field(default_factory=Broadcast[OperatorEvent])

    @property
    def config(self) -> Config:
        """The configuration that the rules of now are from."""
        return self.ruleset.config

    async def describe(self, file: ToolFile) -> Description:
        """Run a file in a cell to see its tools; a fault of it is a broken description."""
        try:
            spec = await look(file.directory, cell_of_description, self.ruleset, file)
            description = await self.describer.describe(spec)
            broken = description.broken
            if broken is not None and broken.missing_module:
                remedy = await self.remedy(file, spec, broken.missing_module)
                description = replace(description, broken=replace(broken, remedy=remedy))
        except Refusal as refusal:
            return Description(broken=BrokenFile("setup", refusal.message))
        except OSError as error:
            return Description(broken=BrokenFile("setup", f"what its cell needs cannot be read: {error}"))
        return description

    async def remedy(self, file: ToolFile, spec: CellSpec, module: str, tool: ToolInfo | None = None) -> str:
        """Return how to get a module that a file could not import in a cell; see `Ruleset.remedy`.

        The file is as it was found: that of a cell is without what waits for trust, which is a part of the answer.
        """
        try:
            return await look(file.directory, self.ruleset.remedy, file, module, spec.interpreter, tool)
        except OSError:  # it is gone
            return ""

    def log(self, call_id: str, tool: str, source: str, level: str, text: str) -> None:
        """Add a line of a tool to the event log."""
        self.logbook.write(LogLine(time.time(), source, level, text, tool, call_id))

    def decision(
        self, action: str, message: str, *, tool: str = "", session_id: str = "", call_id: str = ""
    ) -> None:
        """Publish what a person has decided, and have it recorded.

        Args:
            action: What was done, one word: "trust", "revoke", "abort", "disable", "reload" …
            message: What was decided and why, for display.
            tool: The tool that it is about, if it is about one.
            session_id: The session, likewise.
            call_id: The call, likewise.
        """
        self.happenings.publish(
            OperatorEvent(
                DECISION + action, session_id=session_id, call_id=call_id, tool=tool, message=message
            )
        )
