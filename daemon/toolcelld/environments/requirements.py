"""The packages that tool files in Python ask for, as `inspector.requirements` reads them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from toolcelld.inspector import answers
from toolcelld.inspector.process import InspectionError

BEGIN: Final = b"# /// script"


class RequirementsError(ValueError):
    """Requirements cannot be used; the text says why, and what to write."""


@dataclass(frozen=True, slots=True)
class Requirements:
    """Packages, in a normal form, and the versions of Python that they are for."""

    packages: tuple[str, ...] = ()
    python: str = ""
    """A specifier, as ">=3.12"; empty for every version."""

    def __bool__(self) -> bool:
        return bool(self.packages or self.python)

    def beside(self, packages: Iterable[str]) -> Requirements:
        """Return these and more packages."""
        return Requirements(tuple(sorted({*self.packages, *packages})), self.python)


NO_REQUIREMENTS: Final = Requirements()


def has_block(content: bytes) -> bool:
    """Whether a file may have a block; cheap, for files that have none."""
    return BEGIN in content


def in_file(content: bytes) -> Requirements:
    """Return what the block of a tool file asks for; nothing where there is no block.

    Raises:
        RequirementsError: The block cannot be used.
    """
    if not has_block(content):
        return NO_REQUIREMENTS
    try:
        return Requirements(*answers.script_block(content))
    except InspectionError as error:
        raise RequirementsError(str(error)) from None


def checked(packages: Iterable[str]) -> tuple[str, ...]:
    """Return requirements in their normal form, sorted and without duplicates.

    Args:
        packages: As a person wrote them.

    Raises:
        RequirementsError: One of them is not a name with versions, or there are too many.
    """
    try:
        return answers.requirements(packages)
    except InspectionError as error:
        raise RequirementsError(str(error)) from None
