"""How a tool stands with the trust in its project: what is decided, why in one sentence, and the command that changes it.

The refusal of a call, `check`, `tools`, `trust` and `explain` take the words from here.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import Final

from toolcelld.catalog.discovery.sources import ToolFile, project_directory
from toolcelld.config.resolution.layers import Says, Standing
from toolcelld.policy.decisions.trust import Trusts


@dataclass(frozen=True, slots=True)
class Consent:
    """How a tool, or all of a file, stands with the trust in its project.

    Attributes:
        standing: What rules by name may give it.
        most: The most of what it asks for that the trust allows.
        why: Why it does not have all that it would get, as a clause; empty where it is the user's own or trusted.
        command: What shows and grants that.
        held: What it does not have until then, as a person reads it.
    """

    standing: Standing
    most: Says = field(default_factory=dict[str, object])
    why: str = ""
    command: str = ""
    held: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The sentence, what is held, and the command on a line of its own."""
        held = f" Held until it is trusted: {', '.join(self.held)}." if self.held else ""
        return f"{self.why}.{held}\n  To see what is asked for, and to grant it: {self.command}"


COMPLETE: Final = Consent(Standing.FULL)
"""Nothing waits for trust."""


def grant_command(file: ToolFile) -> str:
    """Return the command that shows what a file asks for, and grants it."""
    by_path = file.project and file.share is None
    return f"toolcell trust {shlex.quote(file.path if by_path else project_directory(file))}"


def consent_to(trusts: Trusts, file: ToolFile, tool: str = "") -> str:
    """Return why the trust in a project does not cover a file of it, or a tool, as a clause; empty where it does.

    Args:
        trusts: All trusted projects.
        file: The file.
        tool: The name of the tool; empty, the default, for the file alone.
    """
    project = project_directory(file)
    trusted = trusts.by_directory.get(project)
    if trusted is None:
        return f"{project} is not trusted"
    if fault := trusted.fault_of(file):
        return fault
    if not tool or trusted.shown(file, tool) is not None:
        return ""
    name = trusted.path_of(file)
    unknown = all(not known for path, known in trusted.tools if path == name)
    return f"{tool} is new since {project} was trusted" + unknown * f": {name} could not be loaded then"
