"""The script block of a tool file: what is read of it, and what is refused."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcelld.environments.requirements import Requirements, RequirementsError, checked, in_file
from toolcelld.inspector.requirements import BEGIN, END, PACKAGES_MAX


def block(*lines: str) -> bytes:
    return "\n".join([BEGIN, *(f"# {line}" if line else "#" for line in lines), END, "x = 1"]).encode()


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"x = 1\n", Requirements()),
        (block('dependencies = ["numpy", "Requests < 3"]'), Requirements(("Requests<3", "numpy"))),
        (block('requires-python = ">=3.12"'), Requirements((), ">=3.12")),
        (block("dependencies = [", '  "a",', "", "]"), Requirements(("a",))),
        (block("dependencies = [\"a[x]; os_name == 'posix'\"]"), Requirements(('a[x]; os_name == "posix"',))),
        (block('dependencies = ["a"]', "[tool.uv]", 'index-url = "http://x"'), Requirements(("a",))),
        (block('dependencies = ["a"]').replace(b"\n", b"\r\n"), Requirements(("a",))),
    ],
)
def test_a_block_is_read(content: bytes, found: Requirements) -> None:
    assert in_file(content) == found


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (block('dependencies = ["x @ file:///etc/passwd"]'), "has an address"),
        (block('dependencies = ["x @ git+https://example.com/x"]'), "has an address"),
        (block('dependencies = ["--index-url http://x"]'), "no requirement"),
        (block('dependencies = ["a\\n-i http://x"]'), "no requirement"),
        (block('dependencies = ["-e /x"]'), "no requirement"),
        (block('dependencies = ["./a"]'), "no requirement"),
        (block('dependencies = ["a --hash=sha256:00"]'), "no requirement"),
        (block('dependencies = "a"'), "should be a list"),
        (block("dependencies = [1]"), "should be a list"),
        (block('requires-python = "new"'), "should be versions"),
        (block("requires-python = 3"), "should be versions"),
        (block("dependencies = ["), "not TOML"),
        (block(f"x = {'[' * 60_000}"), "nested too deeply"),
        (block(f"x = {'9' * 5000}"), "too many digits"),
        (block(f"x{'.x' * 30_000} = 1"), "more than 64 dots in line 1"),
        (block(*["a = 1"] * 20_000), "longer than 64 KiB"),
        (block() + b"\n" + block(), "two script blocks"),
        (f"{BEGIN}\n# dependencies = []\n".encode(), "has no end"),
        (f"{BEGIN}\nx = 1\n{END}\n".encode(), "has no end"),
        (block(f"dependencies = {[f'a{i}' for i in range(PACKAGES_MAX + 1)]}"), "more than"),
    ],
)
def test_a_block_that_asks_for_something_else_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(RequirementsError, match=message):
        in_file(content)


@given(st.binary(max_size=300))
def test_any_file_is_read_or_refused(content: bytes) -> None:
    for whole in (content, block().replace(END.encode(), b"# " + content + b"\n" + END.encode())):
        with contextlib.suppress(RequirementsError):
            assert isinstance(in_file(whole), Requirements)


@given(st.text(max_size=60))
def test_a_requirement_is_one_line_without_options(text: str) -> None:
    try:
        (found,) = checked([text])
    except RequirementsError:
        return
    assert found.isprintable()
    assert found[0].isalnum()
