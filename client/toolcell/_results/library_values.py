"""Values of libraries that tools often use: arrays and tables as data, pictures and figures as pictures.

A library is known by what has been imported already, and nothing is imported here: a value of a library cannot exist
before the library was imported. No library is needed, and a tool that uses none pays a few look-ups, only for values that
are neither text nor plain data.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from toolcell._results.content import Image

UNKNOWN: Final = object()
"""What `plain` returns for a value of no known library."""


def plain(value: Any) -> object:
    """Return the value as lists, mappings and plain values, or `UNKNOWN`."""
    for module, name, convert in _PLAIN:
        if _is_a(value, module, name):
            return convert(value)
    if isinstance(value, picture_types()):
        raise TypeError("a picture is returned by itself or in a list, and not inside of data")
    return UNKNOWN


def picture_types() -> tuple[type, ...]:
    """Return the classes that have been imported so far and of which `picture` makes a picture."""
    kinds = (_imported(module, name) for module, name, _ in _PICTURES)
    return tuple(kind for kind in kinds if kind is not None)


def picture(value: Any) -> Image:
    """Return the picture of a value of one of `picture_types`. Raises `ToolError` if it is too large."""
    convert = next(convert for module, name, convert in _PICTURES if _is_a(value, module, name))
    return Image(data=convert(value), format="png")


def _imported(module: str, name: str) -> type | None:
    # Not by `getattr`, which may make a lazy module import more.
    kind = getattr(sys.modules.get(module), "__dict__", {}).get(name)
    return kind if isinstance(kind, type) else None


def _is_a(value: object, module: str, name: str) -> bool:
    kind = _imported(module, name)
    return kind is not None and isinstance(value, kind)


def without_missing(values: Iterable[Any]) -> list[Any]:
    """Return the values, with None for pandas' missing time, which is a `datetime` that no serialiser writes."""
    missing = getattr(sys.modules.get("pandas"), "__dict__", {}).get("NaT", UNKNOWN)
    return [None if value is missing else value for value in values]


def _without_missing(values: Iterable[Any]) -> list[Any]:
    """Return the values of a pandas table, in which NaN is the mark of a missing one."""
    return [
        None if isinstance(value, float) and value != value else value for value in without_missing(values)
    ]


def _scalar(value: Any) -> object:
    return str(value) if value.dtype.kind in "mM" else value.item()  # a time is no number of nanoseconds


def _array(value: Any) -> object:
    return value.astype(str).tolist() if value.dtype.kind in "mM" else value.tolist()


def _frame(value: Any) -> object:
    """The rows of a pandas table; an index that has names or labels is a column, too."""
    if value.index.names != [None] or not _is_a(value.index, "pandas", "RangeIndex"):
        value = value.reset_index(allow_duplicates=True)
    return _rows(value.columns, value.itertuples(index=False, name=None))


def _rows(columns: Iterable[Any], rows: Iterable[tuple[Any, ...]]) -> object:
    """A mapping for each row; a list where two columns have the same name."""
    names = [_column(name) for name in columns]
    if len(set(names)) < len(names):
        return {"columns": names, "rows": [_without_missing(row) for row in rows]}
    return [dict(zip(names, _without_missing(row), strict=True)) for row in rows]


def _column(name: Any) -> str:
    parts = cast("tuple[object, ...]", name) if isinstance(name, tuple) else (name,)
    return " ".join(str(part) for part in parts if part != "")


def _series(value: Any) -> object:
    """The values of a pandas series, by their labels where it has some."""
    labels = [str(label) for label in value.index]
    if _is_a(value.index, "pandas", "RangeIndex") or len(set(labels)) < len(labels):
        return _without_missing(value)
    return dict(zip(labels, _without_missing(value), strict=True))


def _png_of_image(value: Any) -> bytes:
    buffer = io.BytesIO()
    drawable = value if value.mode in {"1", "L", "LA", "P", "RGB", "RGBA", "I;16"} else value.convert("RGB")
    drawable.save(buffer, "PNG")
    return buffer.getvalue()


def _png_of_figure(value: Any) -> bytes:
    buffer = io.BytesIO()
    value.savefig(buffer, format="png")
    return buffer.getvalue()


# Module, class and conversion. The class is looked for in that module, as far as it has been imported.
_PLAIN: Final[tuple[tuple[str, str, Callable[[Any], object]], ...]] = (
    ("numpy", "ndarray", _array),
    ("numpy", "generic", _scalar),
    ("pandas", "DataFrame", _frame),
    ("pandas", "Series", _series),
    ("pandas", "Index", _without_missing),
    ("pandas._libs.missing", "NAType", lambda _: None),
    ("polars", "DataFrame", lambda frame: frame.to_dicts()),
    ("polars", "Series", lambda series: series.to_list()),
    ("pyarrow", "Table", lambda table: table.to_pylist()),
)
_PICTURES: Final[tuple[tuple[str, str, Callable[[Any], bytes]], ...]] = (
    ("PIL.Image", "Image", _png_of_image),
    ("matplotlib.figure", "Figure", _png_of_figure),
    ("matplotlib.axes", "Axes", lambda axes: _png_of_figure(axes.get_figure(root=True))),
)
