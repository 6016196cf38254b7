"""Values of libraries: arrays and tables are data, pictures and figures are pictures, and nothing is imported for it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

from toolcell import ToolError, ToolResult
from toolcell._results.normalise import ImageBlock, Result, TextBlock, normalise

if sys.version_info < (3, 13) and find_spec("pandas") is None:
    pytest.skip("the libraries are installed for Python 3.13 and later", allow_module_level=True)

# Without their types, which are partly unknown.
np: Any = import_module("numpy")
pd: Any = import_module("pandas")
pillow: Any = import_module("PIL.Image")
Figure: Any = import_module("matplotlib.figure").Figure
PNG = b"\x89PNG\r\n\x1a\n"


def figure() -> Any:
    made = Figure(figsize=(1, 1))
    made.subplots().plot([1, 2])
    return made


figure().savefig(io.BytesIO())  # matplotlib keeps its fonts open from the first figure on


def details(value: object) -> Any:
    found = normalise(value).details
    return None if found is None else json.loads(found)


@pytest.mark.parametrize(
    ("make", "data"),
    [
        (lambda: np.int64(3), 3),
        (lambda: np.float32(0.5), 0.5),
        (lambda: np.bool_(True), True),
        (lambda: np.datetime64("2026-01-02"), "2026-01-02"),
        (lambda: np.arange(4).reshape(2, 2), [[0, 1], [2, 3]]),
        (lambda: np.array([1.5, np.nan]), [1.5, "NaN"]),
        (lambda: np.float64("-inf"), "-Infinity"),
        (lambda: np.array(["2026-01-02"], dtype="datetime64[D]"), ["2026-01-02"]),
        (lambda: {"n": np.int64(1), "a": [np.array([1])]}, {"n": 1, "a": [[1]]}),
        (lambda: pd.DataFrame({"a": [1, 2], "b": ["x", None]}), [{"a": 1, "b": "x"}, {"a": 2, "b": None}]),
        (lambda: pd.DataFrame({"a": [1]}, index=["r"]), [{"index": "r", "a": 1}]),
        (lambda: pd.DataFrame([[1, 2]], columns=["a", "a"]), {"columns": ["a", "a"], "rows": [[1, 2]]}),
        (
            lambda: pd.DataFrame({"k": ["x", "x"], "n": [1, 2]}).groupby("k").agg({"n": ["sum", "max"]}),
            [{"k": "x", "n sum": 3, "n max": 2}],
        ),
        (lambda: pd.DataFrame({"t": pd.to_datetime(["2026-01-02", None])}), [{"t": "2026-01-02T00:00:00"}, {"t": None}]),
        (lambda: pd.to_datetime(pd.Series(["2026-01-02", None])), ["2026-01-02T00:00:00", None]),
        (lambda: pd.DataFrame({"a": [1.5, None]}), [{"a": 1.5}, {"a": None}]),
        (lambda: pd.Series([1.5, None], index=["a", "b"]), {"a": 1.5, "b": None}),
        (lambda: pd.Series([1, 2]), [1, 2]),
        (lambda: pd.Series([1, 2], index=[1, "1"]), [1, 2]),
        (lambda: pd.Series([1, 2], index=["a", "b"]), {"a": 1, "b": 2}),
        (lambda: {"missing": pd.NA, "when": pd.NaT}, {"missing": None, "when": None}),
        (lambda: pd.Index(["a"]), ["a"]),
    ],
)  # fmt: skip
def test_arrays_and_tables_are_data(make: Callable[[], object], data: object) -> None:
    assert details(make()) == data


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "CMYK", "F", "I;16"])
def test_a_picture_of_every_mode_is_a_picture(mode: str) -> None:
    (block,) = normalise(pillow.new(mode, (2, 2))).blocks
    assert isinstance(block, ImageBlock)
    assert (block.data[:8], block.mime_type) == (PNG, "image/png")


def test_a_figure_and_its_axes_are_pictures_also_beside_text() -> None:
    drawn = figure()
    for value in (drawn, drawn.axes[0]):
        (block,) = normalise(value).blocks
        assert isinstance(block, ImageBlock)
    for value in (["before", drawn], ToolResult(["before", drawn])):
        text, block = normalise(value).blocks
        assert (text, type(block)) == (TextBlock("before"), ImageBlock)


def test_a_picture_inside_of_data_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(ToolError, match="a picture is returned by itself or in a list"):
        normalise({"plot": figure()})


def test_a_class_that_only_has_the_name_is_unknown() -> None:
    other = type("DataFrame", (), {"__module__": "pandas"})
    with pytest.raises(ToolError, match="of type DataFrame that has no JSON form"):
        normalise(other())


def test_no_library_is_imported() -> None:
    code = (
        "import sys; from toolcell._results.normalise import normalise\n"
        "normalise({'a': [1]}); normalise([object]) if 0 else None\n"
        "try: normalise([object()])\nexcept Exception: pass\n"
        "print(*sorted({'numpy', 'pandas', 'PIL', 'matplotlib', 'polars', 'pyarrow'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert ran.stdout.strip() == ""


def test_a_plain_value_is_as_before() -> None:
    assert normalise([1, "a"]) == Result((TextBlock('[1,"a"]'),), details=b'[1,"a"]')
