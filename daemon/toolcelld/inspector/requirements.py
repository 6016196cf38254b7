"""Reads which packages a tool file asks for: the `# /// script` block of PEP 723, without running anything.

    # /// script
    # requires-python = ">=3.12"
    # dependencies = ["numpy", "requests<3"]
    # ///

The block is read line by line, so that its time grows with its length only, and parsed as TOML within bounds.
A dependency is a name with versions, extras and markers. Addresses, paths and options are refused: they would name code
outside of the package index, or change the index. `[tool.…]` tables are not read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, cast

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from toolcelld.files.toml import TomlError, parse_toml

BLOCK_BYTES_MAX: Final = 64 * 1024
"""A hundred requirements of sixty characters are a tenth of it."""
PACKAGES_MAX: Final = 200
PACKAGE_CHARACTERS_MAX: Final = 500
PYTHON_CHARACTERS_MAX: Final = 200
BEGIN: Final = "# /// script"
END: Final = "# ///"


def in_script(raw: bytes) -> tuple[list[str], str]:
    """Return the requirements of the block in a tool file, and its versions of Python; nothing where there is no block.

    Args:
        raw: The file's content.

    Raises:
        ValueError: The block cannot be used.
    """
    text = _block(raw)
    if text is None:
        return [], ""
    if len(text) > BLOCK_BYTES_MAX:
        raise ValueError(f"its script block is longer than {BLOCK_BYTES_MAX // 1024} KiB")
    try:
        table = parse_toml(text.encode())
    except TomlError as error:
        raise ValueError(f"its script block {error}") from None
    dependencies: Any = table.get("dependencies", [])
    if not isinstance(dependencies, list) or not all(
        isinstance(one, str) for one in cast("list[object]", dependencies)
    ):
        raise ValueError('`dependencies` of its script block should be a list: ["numpy", "requests<3"]')
    python = table.get("requires-python", "")
    try:
        usable = isinstance(python, str) and len(python) < PYTHON_CHARACTERS_MAX
        specifier = str(SpecifierSet(python)) if usable else None
    except InvalidSpecifier:
        specifier = None
    if specifier is None:
        raise ValueError('`requires-python` of its script block should be versions, as ">=3.12"')
    return checked(cast("list[str]", dependencies)), specifier


def checked(packages: Iterable[str]) -> list[str]:
    """Return requirements in their normal form, sorted and without duplicates.

    Args:
        packages: As a person wrote them.

    Raises:
        ValueError: One of them is not a name with versions, or there are too many.
    """
    found: set[str] = set()
    for package in packages:
        shown = ascii(package[:60])
        # A line break would begin another line, and so an option, in a file of requirements.
        if not package.isprintable() or len(package) > PACKAGE_CHARACTERS_MAX:
            raise ValueError(f'{shown} is no requirement; write a name and versions, as "requests<3"')
        try:
            requirement = Requirement(package)
        except InvalidRequirement:
            raise ValueError(
                f'{shown} is no requirement; write a name and versions, as "requests<3"'
            ) from None
        if requirement.url is not None:
            raise ValueError(
                f"{shown} has an address; packages come from the index that uv is configured with, "
                f'so write "{requirement.name}" and its versions'
            )
        found.add(str(requirement))
        if len(found) > PACKAGES_MAX:
            raise ValueError(f"more than {PACKAGES_MAX} requirements")
    return sorted(found)


def _block(content: bytes) -> str | None:
    """Return the text of the block, or None; raise `ValueError` for two of them, or one without an end."""
    found: list[str] = []
    lines: list[str] | None = None  # of the block that is being read
    for line in content.decode(errors="replace").split("\n"):
        line = line.removesuffix("\r")
        if lines is None:
            lines = [] if line == BEGIN else None
        elif line == END:
            found.append("\n".join(lines))
            lines = None
        elif line == "#" or line.startswith("# "):
            lines.append(line[2:])
        else:
            break
    if lines is not None:
        # Read as no block, it would be a tool that misses its packages, and no word of why.
        raise ValueError(f'its script block has no end: write a line "{END}" below it')
    if len(found) > 1:
        raise ValueError("it has two script blocks; join them")
    return found[0] if found else None
