"""What a cell is for: the file, the place, the limits and the policy of a call."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Final

from toolcelld.catalog.discovery.sources import ToolFile
from toolcelld.environments.interpreter import Interpreter
from toolcelld.environments.requirements import NO_REQUIREMENTS, Requirements
from toolcelld.policy.secrets import NO_SECRETS, SecretRefs
from toolcelld.sandbox.policy import CellLimits, PythonSetup, SandboxPolicy


@dataclass(frozen=True, slots=True, weakref_slot=True)
class CellSpec:
    """What makes two cells interchangeable: calls with equal specs may share one.

    To compare two takes as long as a good part of a call; a plan has the pool's row of workers with such a cell.
    """

    file: ToolFile
    directory: str
    environment: tuple[tuple[str, str], ...]
    limits: CellLimits
    policy: SandboxPolicy
    imported_in: str = ""  # the directory in which the file is loaded; empty for that of the calls
    project: str = ""  # the directory whose imported files are watched
    owner: str = ""  # the session that it is for; empty for a shared one
    serial: bool = False  # one worker at most, and its calls in order
    fresh: bool = False  # each call has a process of its own
    tests: bool = False  # its calls run the tests of the file's tools in place of the tools
    interpreter: Interpreter | None = None  # in place of Toolcell's own
    requirements: Requirements = NO_REQUIREMENTS  # of which an environment is built before the cell starts
    secrets: SecretRefs = NO_SECRETS  # whose values become environment variables of the worker only
    # How long its worker is kept without a call; None is as long as any, infinity for ever.
    kept_seconds: float | None = field(compare=False, default=None)
    lowered: bool = field(compare=False, default=False)  # whether a call asked for less than its tool may use
    hashed: int = field(init=False, compare=False, repr=False, default=0)

    def __post_init__(self) -> None:
        # The content is behind the digest, and hashing it for every call would cost more than the call.
        key = (
            self.file.digest,
            self.directory,
            self.environment,
            self.limits,
            self.policy,
            self.owner,
            self.fresh,
            self.interpreter,
            self.requirements,
            self.secrets,
        )
        object.__setattr__(self, "hashed", hash(key))

    @property
    def is_server(self) -> bool:
        """Whether its worker has an MCP server beside it, whose processes stay between calls."""
        return self.file.share is not None

    def __hash__(self) -> int:
        return self.hashed

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, CellSpec) or self.hashed != other.hashed:
            return False
        return all(getattr(self, name) == getattr(other, name) for name in _COMPARED)

    def beside(self, interpreter: Interpreter | None) -> CellSpec:
        """Return the spec of a cell that has this interpreter, reads what belongs to it and has its programs on PATH."""
        if interpreter is None:
            return self
        policy, environment = self.policy, dict(self.environment)
        if policy.enclosure != "none":
            readable = dict.fromkeys((*policy.readable, *interpreter.readable))
            policy = replace(policy, readable=tuple(readable))
        if interpreter.engine:
            return replace(self, policy=policy, interpreter=interpreter)
        if interpreter.is_environment:
            environment["VIRTUAL_ENV"] = interpreter.prefix
        places = environment.get("PATH", os.defpath).split(os.pathsep)
        # After the programs that the source names.
        places.insert(len(self.file.programs), os.path.join(interpreter.prefix, "bin"))
        environment["PATH"] = os.pathsep.join(places)
        return replace(
            self, policy=policy, environment=tuple(sorted(environment.items())), interpreter=interpreter
        )

    def setup_message(self, tmpdir: str, secrets: Mapping[str, str], *, memory_held: bool) -> bytes:
        """What the cell is told that it is for, as JSON."""
        return json.dumps(
            {
                "directory": self.directory,
                "imported_in": self.imported_in or self.directory,
                "environment": {**dict(self.environment), **secrets},
                "limits": asdict(self.limits),
                "memory_held": memory_held,
                "policy": self.policy.to_wire(),
                "scratch": tmpdir,
                "project": self.project,
                "python": asdict(_python_setup(self.interpreter, self.file))
                if self.interpreter is not None
                else None,
            }
        ).encode()


_COMPARED: Final = tuple(field.name for field in fields(CellSpec) if field.compare)


def _python_setup(interpreter: Interpreter, file: ToolFile) -> PythonSetup:
    return PythonSetup(
        interpreter.executable,
        interpreter.prefix,
        interpreter.packages,
        interpreter.program,
        interpreter.engine,
        file.directory,
    )
