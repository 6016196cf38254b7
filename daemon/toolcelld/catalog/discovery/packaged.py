"""Tools that packages bring: the entry points of Python distributions, and the plugins of oh-my-pi.

    [project.entry-points."toolcell.tools"]          # in pyproject.toml of a package that is installed beside Toolcell
    weather = "my_tools.weather"                      # a module, which is a tool file

    {"name": "my-plugin", "omp": {"tools": "./tools"}}   # in package.json, below ~/.omp/plugins/node_modules

Nothing of a package is imported or run to find its tools. Its files are the user's own, as the user has installed it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Final, cast

from toolcell._file_kinds import PYTHON
from toolcell._paths import is_below
from toolcelld.files.regular import NotRegularError, TooLargeError, read_regular
from toolcelld.flavours import Flavour, used

GROUP: Final = "toolcell.tools"
"""Of the entry points."""
MANIFEST_BYTES_MAX: Final = 256 * 1024
PLUGINS_MAX: Final = 500
TOOLS_MAX: Final = 500
"""Of one package."""

_entry_points: dict[tuple[tuple[str, int], ...], tuple[PackagedTool, ...]] = {}


@dataclass(frozen=True, slots=True)
class PackagedTool:
    """A tool file, or a directory of them, that a package brings; `problem` says why it cannot be used.

    Attributes:
        path: Absolute; a package by its directory.
        origin: Who says so: a distribution's entry points, or a package.json.
        problem: Empty if there is none.
        has_many: Whether it is a directory of tool files.
    """

    path: str
    origin: str
    problem: str = ""
    has_many: bool = False


def packaged_tools(flavours: Collection[str]) -> tuple[PackagedTool, ...]:
    """Return what installed packages bring. Blocks on the file system.

    Args:
        flavours: The systems whose packages are looked for, beside Python's distributions.
    """
    return (*_of_entry_points(), *(tool for flavour in used(flavours) for tool in _of_packages(flavour)))


def _of_entry_points() -> tuple[PackagedTool, ...]:
    """Return those of the distributions in our own environment; read again when something is installed."""
    places = tuple((place, _changed_ns(place)) for place in sys.path if place)
    if places not in _entry_points:
        _entry_points.clear()
        try:
            _entry_points[places] = tuple(map(_of_entry_point, metadata.entry_points(group=GROUP)))
        except (OSError, ValueError) as error:  # of one distribution; which one, it does not say
            cause = f"an installed package cannot be read: {str(error)[:200]}"
            return (PackagedTool(sys.prefix, f"the entry points of {sys.prefix}", cause),)
    return _entry_points[places]


def _of_entry_point(point: metadata.EntryPoint) -> PackagedTool:
    distribution = point.dist
    origin = f"the entry points of {distribution.name if distribution is not None else 'a package'}"
    module = point.value.partition(":")[0].strip()
    if "." not in module or not all(map(str.isidentifier, module.split("."))):
        wrong = f"{module[:100]!r} is no module of a package; write '{point.name} = package.module'"
        return PackagedTool(point.name, origin, wrong)
    stem = os.path.join(*module.split("."))
    own = [str(distribution.locate_file(""))] if distribution is not None else []
    for place in (*own, *filter(None, sys.path)):  # an editable package lies elsewhere
        path = os.path.abspath(os.path.join(place, stem))
        if (file := next(filter(os.path.isfile, PYTHON.files_of(path)), None)) is not None:
            return PackagedTool(path if file in PYTHON.packages_in(path) else file, origin)
    return PackagedTool(point.name, origin, f"there is no module {module}")


def _of_packages(flavour: Flavour) -> Iterator[PackagedTool]:
    """Yield those of the npm packages that are installed for a system."""
    if not flavour.packages:
        return
    above = os.path.join(os.path.expanduser("~"), flavour.packages)
    for package in _packages(above)[:PLUGINS_MAX]:
        manifest = os.path.join(package, "package.json")
        try:
            said: object = json.loads(read_regular(manifest, MANIFEST_BYTES_MAX))
        except FileNotFoundError:
            continue
        except (OSError, ValueError, RecursionError, NotRegularError, TooLargeError) as error:
            yield PackagedTool(manifest, manifest, f"cannot be read: {str(error)[:200]}")
            continue
        yield from _of_manifest(manifest, package, said, flavour.manifest_keys)


def _of_manifest(manifest: str, package: str, said: object, keys: Sequence[str]) -> Iterator[PackagedTool]:
    sections = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
    found = (sections[key] for key in keys if isinstance(sections.get(key), dict))
    tools: object = next(found, cast("dict[str, object]", {})).get("tools")
    if tools is None:
        return  # a plugin of another kind
    listed = cast("list[object]", tools if isinstance(tools, list) else [tools])
    if not listed or not all(isinstance(one, str) and one for one in listed):
        yield PackagedTool(manifest, manifest, '"tools" is to be a path, or a list of paths')
        return
    real = os.path.realpath(package)
    for one in cast("list[str]", listed)[:TOOLS_MAX]:
        path = os.path.realpath(os.path.join(real, one.replace("\0", "")))
        if "\0" in one or not is_below(path, real):
            yield PackagedTool(manifest, manifest, f"{one[:100]!r} leads out of the package")
        elif not os.path.exists(path):
            yield PackagedTool(manifest, manifest, f"there is no {one[:100]!r}")
        else:
            is_one = any(map(os.path.isfile, PYTHON.packages_in(path)))
            yield PackagedTool(path, manifest, has_many=os.path.isdir(path) and not is_one)


def _packages(above: str) -> list[str]:
    """Return the directories of packages, those of scopes (`@name/package`) too, sorted."""
    found: list[str] = []
    for name in _names(above):
        path = os.path.join(above, name)
        found += [os.path.join(path, inner) for inner in _names(path)] if name.startswith("@") else [path]
    return found


def _names(directory: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(directory) if not name.startswith("."))
    except OSError:
        return []


def _changed_ns(place: str) -> int:
    try:
        return os.stat(place).st_mtime_ns
    except OSError:
        return 0
