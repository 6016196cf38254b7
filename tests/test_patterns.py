"""Every regular expression of the code over 16 kB of what it is made of: none takes more than its length.

The interpreter's lock is held while one matches, so a slow one would stop every session. What backtracks is found by
repeating each letter that a pattern speaks of, and each pair of them, after each prefix that begins a match, in a process
with a time to live. One that looks at each pair of letters takes some seconds for that, many times what is allowed,
and one that looks at each letter milliseconds. What 4 kB take no millisecond is not tried with more but in the nightly run,
which has 64 kB of each pair and a megabyte of each letter.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FUNCTIONS = {"compile", "match", "search", "fullmatch", "sub", "split", "findall", "finditer"}

TRIED = r"""
import itertools, re, resource, sys, time
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
pattern, flags, methods = eval(sys.stdin.read())
compiled = re.compile(pattern, flags)
binary = isinstance(pattern, bytes)
text = pattern.decode("latin-1") if binary else pattern
letters = {one for one in text if one.isprintable()} | set(" \t\n\r\"'\\/.:=-_#[](){}<>a0Zé*,;@%")
pieces = sorted(letters) + ["".join(two) for two in itertools.product(sorted({*text} & letters), repeat=2)][:200]
pieces += ["ab.", "a:b@", "key=", "coding ", " = ", "\\\\n", "a b", "://", "a-", "{}", "\x1b[", "0;"]
kinds = {
    "match": compiled.match, "fullmatch": compiled.fullmatch, "search": compiled.search,
    "other": lambda whole: compiled.sub("" if not binary else b"", whole),
}
def seconds(kind, whole):
    whole = whole.encode("latin-1") if binary else whole
    begun = time.process_time()
    kind(whole)
    return time.process_time() - begun
sizes = [2**13, 2**16] if (megabyte := sys.argv[1:] == ["megabyte"]) else [2**12, 2**14]
for piece in pieces:
    for kind in {method if method in kinds else "other" for method in methods}:
        for size in (*sizes, *[2**20][: megabyte and len(piece) == 1]):  # the slow ones are seen before they take long
            taken = seconds(kinds[kind], (piece * (size // len(piece))))
            if taken > 0.05 + size * 2e-6:
                sys.exit(f"{kind} of {piece!r} * {size // len(piece)} takes {taken:.2f} s")
            if not megabyte and taken < 0.001:  # less than the eight million pairs of 4096 letters take
                break
"""


def patterns() -> list[tuple[str, str | bytes, int, tuple[str, ...]]]:
    """The patterns that are written in the code: where, their flags, and how they are used. Those put together are left out."""
    found: dict[tuple[str | bytes, int], tuple[str, tuple[str, ...]]] = {}
    for top in ("daemon/toolcelld", "client/toolcell"):
        for path in sorted((ROOT / top).rglob("*.py")):
            text = path.read_text()
            for node in ast.walk(ast.parse(text)):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and isinstance(node.func.value, ast.Name)
                    and node.func.value.id == "re"
                    and node.func.attr in FUNCTIONS
                    and node.args
                    and isinstance(node.args[0], ast.Constant)
                    and isinstance(pattern := node.args[0].value, str | bytes)
                ):
                    named = {ast.unparse(part) for part in node.args[1:] if "re." in ast.unparse(part)}
                    flags = sum(int(eval(name, {"re": re})) for name in named)  # noqa: S307  our own code
                    methods = {node.func.attr}
                    if node.func.attr == "compile":
                        name = text.splitlines()[node.lineno - 1].partition("=")[0].partition(":")[0].strip()
                        methods = {*re.findall(rf"\b{re.escape(name)}\.(\w+)", text)} or {*FUNCTIONS}
                    where = f"{path.relative_to(ROOT)}:{node.lineno}"
                    found.setdefault((pattern, flags), (where, tuple(sorted(methods))))
    return [(where, pattern, flags, methods) for (pattern, flags), (where, methods) in found.items()]


PATTERNS = patterns()


def test_they_are_found() -> None:
    assert len(PATTERNS) > 60


def tried(
    pattern: str | bytes, flags: int, methods: tuple[str, ...], *options: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", TRIED, *options],
        input=repr((pattern, flags, methods)),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "flags", "methods"), [pytest.param(*rest, id=where) for where, *rest in PATTERNS]
)
def test_no_pattern_takes_the_square_of_its_text(
    pattern: str | bytes, flags: int, methods: tuple[str, ...]
) -> None:
    ran = tried(pattern, flags, methods)
    assert ran.returncode == 0, f"{pattern!r}: {ran.stderr[-300:]}"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("pattern", "flags", "methods"), [pytest.param(*rest, id=where) for where, *rest in PATTERNS]
)
def test_no_pattern_takes_long_over_a_megabyte_of_one_letter(
    pattern: str | bytes, flags: int, methods: tuple[str, ...]
) -> None:
    ran = tried(pattern, flags, methods, "megabyte")
    assert ran.returncode == 0, f"{pattern!r}: {ran.stderr[-300:]}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "method"),
    [(r"(?:a|b)+c", "sub"), (r"x*y", "findall"), (rb"[^/]*/\Z", "search")],
)
def test_one_that_does_is_found(pattern: str | bytes, method: str) -> None:
    assert " takes " in tried(pattern, 0, (method,)).stderr
