"""What was moved aside in a project, and how that is reported."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from typing import NamedTuple


class Moved(NamedTuple):
    """A place that was moved aside, or was to be."""

    path: str
    aside: str  # its new name; empty where it could not be renamed
    failure: str = ""

    def __str__(self) -> str:
        return f"{self.path} to {self.aside}" if self.aside else f"{self.path} (NOT moved: {self.failure})"

    def redacted(self, redact: Callable[[str], str]) -> Moved:
        """Return it with its texts redacted: a tool can make a file of any name."""
        return Moved(redact(self.path), redact(self.aside), self.failure)

    @property
    def note(self) -> str:
        """The note for the model and the user, which accompanies the result."""
        why = "programs outside of the sandbox would run or read it"
        if not self.aside:
            return (
                f"{self.path} appeared during the call and could not be moved aside ({self.failure}); {why}."
                " Look at it and remove it before you run anything in this directory."
            )
        aside = os.path.join(os.path.dirname(self.path), self.aside)
        return (
            f"Moved {self}, because it appeared during the call, and {why}."
            " To let tools make it, leave it out of the names in [defaults] protected."
            f" To undo it: mv {shlex.quote(aside)} {shlex.quote(self.path)}"
        )
