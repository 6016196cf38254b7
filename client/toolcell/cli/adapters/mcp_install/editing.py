"""What is asked of a format of configuration files: to put one member into the text of a file, and to take it out again.

The file is another program's, and people have written in it. So no format is read and written anew, which would lose
comments, the order and how a number is written: the text is cut open at one place. Each editor reads its own result
again, and refuses where that is not what was there before and the member.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

__all__ = ["Editor", "NotPlain"]


class NotPlain(Exception):
    """The text has another shape than an editor can be sure of; the message says where."""


class Editor(Protocol):
    """A format. All of it raises NotPlain."""

    def member(self, text: str, outer: str, name: str) -> Any:
        """The value of `name` in the object `outer` of the file; None where it is not."""

    def with_member(self, text: str, outer: str, name: str, value: Mapping[str, Any]) -> str:
        """The text with `name` in the object `outer`, which is made where it is not."""
        ...

    def without_member(self, text: str, outer: str, name: str) -> str:
        """The text without `name` in the object `outer`."""
        ...
