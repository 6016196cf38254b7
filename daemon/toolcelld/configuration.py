"""The configuration in force: read at the start, and again by a reload, which hands each part of the daemon its share.

A configuration with a mistake changes nothing. What the files say and what is in force differ after a start with what was
good last, until a reload; the notice says so.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from toolcell import _paths
from toolcelld.catalog.catalog import Catalog
from toolcelld.config.last_good import FLAG, load_and_keep, recall
from toolcelld.config.load import Config, changed_keys, load
from toolcelld.config.mistakes import dotted
from toolcelld.environments.engine import ENGINES, engine_here
from toolcelld.environments.programs import programs_of
from toolcelld.event_log import OperatorEvent
from toolcelld.records.ledger import Records
from toolcelld.rules import Rules
from toolcelld.services import Services
from toolcelld.sessions.registry import Sessions

logger = logging.getLogger(__name__)


class Configuration:
    """What the daemon was configured with. Raises `ConfigError` when it is made.

    Args:
        state: The state directory, which keeps what was good last.
        environment: Of the daemon, which says where programs are.
        paths: The files, which have to be there; None for the user's.
        last_good: Whether to start with the user's files as they were when they had no mistake.
        only: The tool files to serve; empty for all that the sources have.
        tests: Whether calls run the tests of tools in place of the tools.
    """

    def __init__(
        self,
        state: str,
        environment: Mapping[str, str],
        *,
        paths: Sequence[str] | None = None,
        last_good: bool = False,
        only: tuple[str, ...] = (),
        tests: bool = False,
    ) -> None:
        self._state = state
        self._environment = environment
        self._paths = paths
        self._only = only
        self._tests = tests
        self.notice = ""
        """That it is not what the files say; empty where it is."""
        self.current: Config = self._last_good() if last_good else self._read()
        """The mutable state, which `reload` replaces."""

    @property
    def directories(self) -> list[str]:
        """Those of the files."""
        return [os.path.dirname(path) for path in self._paths or _paths.config_paths()]

    def _read(self) -> Config:
        if self._paths is None:
            return self._with_options(load_and_keep(self._state, _paths.config_paths()))
        return self._with_options(load(self._paths, required=True))

    def _last_good(self) -> Config:
        kept = recall(self._state)
        loaded = kept.load(_paths.config_paths())
        self.notice = (
            f"The configuration is that of {kept.when}, as the daemon was started with {FLAG}.\n"
            "Mend the files, as toolcell config check says, then: toolcell reload"
        )
        logger.warning("%s", self.notice.partition("\n")[0])
        return self._with_options(loaded)

    def _with_options(self, loaded: Config) -> Config:
        if loaded.held:
            keys = ", ".join(sorted({dotted(each.path) for each in loaded.held}))
            logger.info("%s allows less than is configured: %s", f"[enforce] in {_paths.SYSTEM_CONFIG}", keys)
        return replace(loaded, only=self._only, tests=self._tests)

    async def reload(
        self, services: Services, sessions: Sessions, rules: Rules, records: Records
    ) -> list[Catalog]:
        """Read the files, hand the parts what has changed, and rescan all directories. Raises `ConfigError` and changes nothing then."""
        before, config = self.current, await asyncio.to_thread(self._read)
        self.current, self.notice = config, ""
        changed = changed_keys(before, config)
        services.decision("reload", f"changed: {', '.join(changed)}" if changed else "nothing changed")
        await asyncio.to_thread(self.find_programs)
        # Another daemon of this user may have been told of more
        await rules.recall(config=config, hooks=await rules.hooks(config))
        sessions.reconsider()
        sessions.retention.limits = config.daemon
        records.section = config.records
        pool = services.pool
        pool.workers_max = config.daemon.workers
        pool.keep_idle(config.daemon.worker_idle_seconds)
        pool.grace_seconds = config.daemon.abort_grace_seconds
        pool.load_seconds = services.describer.load_seconds = config.daemon.load_timeout_seconds
        services.watch.renew()
        catalogs = await services.catalogs.refresh_all()
        services.happenings.publish(OperatorEvent("config.reloaded"))
        return catalogs

    def find_programs(self) -> None:
        """Find what the daemon starts, before any tool runs, and take nothing from where profiles let tools write. Blocks."""
        programs = programs_of(self._environment.get("PATH", os.defpath), os.path.expanduser("~"))
        programs.avoid([place for profile in self.current.profiles.values() for place in profile.writable])
        for engine in ENGINES:
            engine_here(engine)
        commands = (secret.command[0] for secret in self.current.secrets.values() if secret.command)
        for name in ("uv", *commands):
            if os.sep not in name:
                programs.find(name)
