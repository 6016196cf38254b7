"""What a notebook shows of an outcome."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest

from toolcell.client import ImageData, Kind, Outcome, Text
from toolcell.client.notebook import PICTURES_BYTES_MAX, PICTURES_MAX, TEXT_CHARACTERS_MAX

PICTURE = b"\x89PNG picture"


def bundle(*content: Any, **more: Any) -> dict[str, str]:
    outcome = Outcome(more.pop("kind", Kind.ok), content=content, **more)
    found = outcome._repr_mimebundle_(include=None, exclude=None)  # pyright: ignore[reportPrivateUsage]
    assert found.pop("text/plain") == repr(outcome)
    return found


def test_a_picture_is_shown_with_the_text_around_it() -> None:
    page = bundle(Text("before"), ImageData(PICTURE, "image/png"), notes=("an older version",))["text/html"]
    encoded = base64.b64encode(PICTURE).decode()
    assert page.splitlines() == [
        "<pre>before</pre>",
        f'<img src="data:image/png;base64,{encoded}">',
        "<pre>[an older version]</pre>",
    ]


def test_without_a_picture_the_repr_is_enough() -> None:
    assert bundle(Text("<b>")) == {}
    assert bundle(kind=Kind.crashed, message="gone") == {}


@pytest.mark.parametrize(
    "mime_type", ["image/svg+xml", "text/html", 'image/png" onerror="alert(1)', "image/PNG", "", "x" * 5000]
)
def test_only_pictures_that_no_browser_runs_are_shown(mime_type: str) -> None:
    page = bundle(ImageData(b"<script>", mime_type))["text/html"]
    assert "<img" not in page
    assert re.fullmatch(r"<pre>[^<>\"]*</pre>", page)


def test_the_text_of_a_tool_is_text_on_the_page() -> None:
    hostile = "</pre><script>alert(1)</script>\x1b[2J\u202e<img src=x onerror=alert(1)>"
    failed = {"kind": Kind.crashed, "message": hostile, "notes": (hostile,)}
    page = bundle(Text(hostile), ImageData(PICTURE, "image/png"), **failed)["text/html"]
    assert re.findall(r"<(?!/?pre>)[^>]*", page) == [
        f'<img src="data:image/png;base64,{base64.b64encode(PICTURE).decode()}"'
    ]
    assert "\x1b" not in page
    assert "\u202e" not in page


def test_a_page_has_a_bound() -> None:
    large, small = ImageData(bytes(PICTURES_BYTES_MAX), "image/png"), ImageData(PICTURE, "image/gif")
    page = bundle(small, large, *[small] * PICTURES_MAX, Text("&" * 10**6))["text/html"]
    assert page.count("<img") == PICTURES_MAX
    assert f"[image: image/png, {PICTURES_BYTES_MAX} bytes]" in page
    assert f"… and {10**6 - TEXT_CHARACTERS_MAX} more characters" in page
    assert len(page) < 20 * TEXT_CHARACTERS_MAX
