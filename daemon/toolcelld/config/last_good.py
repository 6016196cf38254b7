"""The configuration that was read without a mistake last, for a start when the files have one.

It is kept in the state directory, which is this user's alone. Root's own file is never taken from there: what it enforces
holds as it is now.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from toolcell import _paths
from toolcelld.config.load import FILE_BYTES_MAX, Config, load, read_file
from toolcelld.config.mistakes import ConfigError, Mistake
from toolcelld.files.regular import NotRegularError, TooLargeError, read_regular

NAME: Final = "last-good.json"
FLAG: Final = "--last-good"
KEPT_BYTES_MAX: Final = 8 * FILE_BYTES_MAX
"""Of two files, each byte of which may take six in JSON and most of which take one."""


@dataclass(frozen=True, slots=True)
class LastGood:
    """What was kept.

    Attributes:
        files: The content of each file that was there, by path.
        written: Unix time.
    """

    files: Mapping[str, bytes]
    paths: tuple[str, ...]  # of which these are those that were there
    written: float

    def load(self, paths: Sequence[str]) -> Config:
        """Return the configuration of these files as they were; of root's file as it is. Raises `ConfigError`."""
        if tuple(paths) != self.paths:
            problem = f"was not kept; what was good last are other files: {', '.join(self.paths)}"
            raise ConfigError(paths[-1], [Mistake("", "", problem)])
        read = [path for path in paths if path == _paths.SYSTEM_CONFIG or path in self.files]
        instead = {path: raw for path, raw in self.files.items() if path != _paths.SYSTEM_CONFIG}
        return load(read, instead=instead)

    @property
    def when(self) -> str:
        """When it was kept, for people."""
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.written))


def load_and_keep(state: str, paths: Sequence[str]) -> Config:
    """Return the configuration of the user's files, and keep them as they are. Raises `ConfigError`.

    Args:
        state: The state directory.
        paths: The files, the later on top.
    """
    read = {path: raw for path in paths if (raw := read_file(path, required=False)) is not None}
    config = load(paths, instead=read)
    _keep(state, LastGood(read, tuple(paths), time.time()))
    return config


def _keep(state: str, good: LastGood) -> None:
    """Keep files, unless they are kept already; where the disk takes nothing, those before stay."""
    with contextlib.suppress(ConfigError):
        kept = recall(state)
        if (kept.files, kept.paths) == (good.files, good.paths):
            return
    path = os.path.join(state, NAME)
    texts = {name: raw.decode() for name, raw in good.files.items()}
    with contextlib.suppress(OSError):
        with open(os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump({"files": texts, "paths": good.paths, "written": good.written}, file)
        os.replace(f"{path}.new", path)


def recall(state: str) -> LastGood:
    """Return what a state directory has. Raises `ConfigError` where that is nothing that can be used."""
    path = os.path.join(state, NAME)
    try:
        found: Any = json.loads(read_regular(path, KEPT_BYTES_MAX))
        files = cast("Mapping[str, str]", found["files"])
        raw = {str(name): text.encode() for name, text in files.items()}
        return LastGood(raw, tuple(map(str, found["paths"])), float(found["written"]))
    except FileNotFoundError:
        problem = "is not there: no configuration was good yet"
    except (OSError, NotRegularError, TooLargeError) as error:
        problem = f"cannot be read: {error}"
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        problem = "is damaged; mend the configuration itself"
    raise ConfigError(path, [Mistake("", "", problem)])


def advice(state: str) -> str:
    """Return the line that names the way to start with it; empty where nothing can be used."""
    try:
        kept = recall(state)
    except ConfigError:
        return ""
    return f"To start with the configuration of {kept.when}, which had no mistake: toolcelld {FLAG}"
