"""Docstrings: the description, and the sentences about the arguments, in the three common forms."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell._arguments.docstring import parse
from toolcell._authoring.discover import exports
from toolcell._authoring.tool import MARK

GOOGLE = """Find lines.

Looks everywhere.

Args:
    pattern: A regular
        expression.
    limit (int, optional): The most: ten
        at once.

Returns:
    The lines.
"""
NUMPY = """Find lines.

Looks everywhere.

Parameters
----------
pattern : str
    A regular
    expression.
limit : int, optional
    The most: ten
    at once.

Returns
-------
list
    The lines.
"""
SPHINX = """Find lines.

Looks everywhere.

:param pattern: A regular
    expression.
:type pattern: str
:param int limit: The most: ten
    at once.
:returns: The lines.
"""
RETURNS = {
    GOOGLE: "Returns:\n    The lines.",
    NUMPY: "Returns\n-------\nlist\n    The lines.",
    SPHINX: ":returns: The lines.",
}


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_each_form_gives_the_same(docstring: str) -> None:
    description, arguments = parse(docstring)
    assert arguments == {"pattern": "A regular expression.", "limit": "The most: ten at once."}
    assert description == f"Find lines.\n\nLooks everywhere.\n\n{RETURNS[docstring]}"


def test_numpy_names_may_share_a_text_and_have_no_type() -> None:
    text = "Add.\n\nParameters\n----------\na, b : int\n    A summand.\n*rest\n    More.\n\nOther Parameters\n---------------\nc\n    Seldom.\n"
    assert parse(text) == ("Add.", {"a": "A summand.", "b": "A summand.", "rest": "More.", "c": "Seldom."})


@pytest.mark.parametrize(
    "text",
    [
        "Use :param: with care.",
        "A table\n-------\nof things.",
        "See https://example.org: it is there.",
        "Parameters are read from a file.",
        ":raises ValueError: Never.",
    ],
)
def test_a_text_that_only_looks_alike_is_unchanged(text: str) -> None:
    assert parse(text) == (text, {})


@given(st.text(alphabet=" \n\t:-*abArgsPmeters_()param", max_size=200))
def test_every_docstring_is_read(text: str) -> None:
    description, arguments = parse(text)
    assert len(description) + sum(map(len, arguments.values())) <= len(text.expandtabs()) + len(text)


@pytest.mark.parametrize("docstring", [NUMPY, SPHINX])
def test_the_model_is_shown_what_is_said_of_an_argument(docstring: str) -> None:
    def find(pattern: str, limit: int = 10) -> None: ...

    find.__doc__ = inspect.cleandoc(docstring)

    setattr(find, MARK, {})
    (tool,) = exports({"__name__": __name__, "find": find}, "find").tools
    assert tool.input_schema["properties"]["limit"]["description"] == "The most: ten at once."
    assert tool.description.startswith("Find lines.\n\nLooks everywhere.")
