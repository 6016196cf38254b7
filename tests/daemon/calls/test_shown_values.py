"""Arguments and results as operators see them: cut anywhere, of any shape, and without secrets."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcelld.calls.outcomes.shown_values import MASK, UNREADABLE, shown_arguments, shown_result

VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
SECRET = 'hunter2-\u00e9\U0001f600"\\'


def test_texts_under_secret_names_are_masked_however_deep() -> None:
    for name in (
        "password", "PASSWORD", "db_passwd", "apiKey", "api_key", "API-KEY", "accessToken", "client_secret", "Authorization",
        "authorisation", "private_key", "privateKey", "set-cookie", "credentials", "passphrase", "passcode",
    ):  # fmt: skip
        given = json.dumps({"a": 1, name: SECRET, "b": {name: [{"x": SECRET}, 5]}})
        shown = json.loads(shown_arguments(given.encode(), len(given)))
        assert shown == {"a": 1, name: MASK, "b": {name: [{"x": MASK}, 5]}}
    assert shown_arguments(b'{"author": "me", "pass": "x"}', 29) == '{"author": "me", "pass": "x"}'


@pytest.mark.parametrize(
    "name",
    [
        "pass\u200bword",
        "\u2060token",
        "se\u00adcret",
        "\uff50\uff41\uff53\uff53\uff57\uff44",
        "to\ufe0fken",
        "api\u3164key",
    ],
)
def test_a_name_that_only_looks_like_a_secret_one_is_masked(name: str) -> None:
    given = json.dumps({name: SECRET})
    assert json.loads(shown_arguments(given.encode(), len(given))) == {name: MASK}


@pytest.mark.parametrize("ascii_only", [False, True])
def test_no_cut_shows_a_secret_or_fails(ascii_only: bool) -> None:  # a parameter of pytest
    whole = json.dumps(
        {"text": "abc", "password": SECRET * 3, "z": [1, {"k": SECRET[0]}]}, ensure_ascii=ascii_only
    )
    data = whole.encode()
    for end in range(len(data)):
        shown = shown_arguments(data[:end], len(data))
        assert "hunter2" not in shown
        assert shown == "" or shown.endswith(" …") or shown == UNREADABLE


@given(VALUES, st.integers(0, 300))
def test_whatever_is_given_is_shown_or_said_to_be_unreadable(value: Any, end: int) -> None:
    data = json.dumps(value).encode()
    whole = shown_arguments(data, len(data))
    assert "hunter" not in whole
    for cut in (data[:end], data[end:]):
        assert isinstance(shown_arguments(cut, len(data)), str)
        assert isinstance(shown_result(cut, len(data)), str)


@pytest.mark.parametrize(
    "data", [b"\xff", b"junk", b"[" * 1000, b'{"a":' * 200, b"nul", b"\x00", random.Random(1).randbytes(1000)]
)
def test_what_is_no_json_is_not_shown(data: bytes) -> None:
    assert shown_arguments(data, len(data)) in (UNREADABLE, "") or data[:1] in b"[{"
    assert isinstance(shown_result(data, len(data)), str)


def test_a_result_is_its_texts_and_the_types_of_the_rest() -> None:
    body = {
        "content": [
            {"type": "text", "text": "one\ntwo"},
            {"type": "image", "mime_type": "image/png", "data": "AAAA"},
            {"type": "resource_link", "uri": "file:///x", "name": "x", "mime_type": None},
            {"type": "other"},
            "no block",
        ],
        "details": {"never": "shown"},
    }
    data = json.dumps(body).encode()
    assert shown_result(data, len(data)) == "one\ntwo\n(image/png)\n(file:///x)\n(other)"
    assert shown_result(data[:46], len(data)) == "one\ntw …"
    for odd in (b"[]", b"5", b'{"content": 5}', b'{"content": {"text": "x"}}', b'{"content": [[]]}'):
        assert shown_result(odd, len(odd)) == ""
