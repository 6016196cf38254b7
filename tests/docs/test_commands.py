"""The commands of the pages exist with their options, in consoles and in the text."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from typing import Final

import pytest
from packaging.requirements import Requirement
from tests.cli.command_lines import parse, unknown_options

from .pages import PAGES, ROOT, Block, blocks, prose, read

MAKEFILE: Final = (ROOT / "Makefile").read_text()
EXTRAS: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
OTHERS: Final = frozenset(
    {
        "cat",
        "cd",
        "cp",
        "curl",
        "dirname",
        "echo",
        "eval",
        "export",
        "grep",
        "grpcurl",
        "ln",
        "mkdir",
        "pgrep",
        "pytest",
        "python3",
    }
    | {"kubectl", "readlink", "sed", "source", "systemctl", "which"}
)
"""Programs of the system, or of the reader."""
MESSAGES: Final = frozenset({"toolcell cannot be run"})
"""What begins like a command and is none."""
INLINE: Final = re.compile(r"`((?:toolcell|make) [^`]*)`")


def typed(block: Block) -> list[str]:
    """Return the lines of a console that are typed, those that go on joined."""
    text = block.text.replace("\\\n", " ")
    return [line[2:] for line in text.splitlines() if line.startswith("$ ")]


def commands(line: str) -> Iterator[list[str]]:
    """Yield the commands of a line of a shell, without what they are redirected to."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.commenters = "#"
    lexer.whitespace_split = True
    words: list[str] = []
    redirected = False
    for token in [*lexer, ";"]:
        if set(token) <= set("();<>|&"):
            redirected = ">" in token or "<" in token
            if words and not redirected:
                yield words
                words = []
        elif not redirected:
            words.append(token)


def fault(words: list[str]) -> str:
    """Return what is wrong with a command; "" if nothing is."""
    program, *rest = words
    match program:
        case "toolcell":
            try:
                parse(words)
            except Exception as error:  # noqa: BLE001  what the parser of the command raises is what is asked for
                return f"{shlex.join(words)}: {error}"
        case "sudo":
            return fault([rest[0].removeprefix("/opt/toolcell/bin/"), *rest[1:]])
        case "make":
            return make_fault(rest)
        case "pip" | "pipx" | "uv":
            return extras_fault(rest)
        case "python":
            assert rest[0] == "-m" or rest[0].endswith(".py"), words
        case _ if program not in OTHERS and not re.match(r"\w+=", program):
            return f"no program that a page may take for granted: {program}"
        case _:
            pass
    return ""


def make_fault(words: list[str]) -> str:
    for word in words:
        name, value, _ = word.partition("=")
        known = rf"\b{name} *\??:?=|\$[({{]{name}\b" if value else rf"^{re.escape(name)}:"
        if not re.search(known, MAKEFILE, re.MULTILINE):
            return f"make has no {name}"
    return ""


def extras_fault(words: list[str]) -> str:
    for word in words:
        extras = re.match(r"\.\[([\w,]+)\]$", word)
        if extras or word.startswith("toolcell["):
            named = set(extras[1].split(",")) if extras else Requirement(word).extras
            if not named <= set(EXTRAS):
                return f"no extra of ours: {word}"
    return ""


@pytest.mark.parametrize("block", [pytest.param(block, id=block.place) for block in blocks("console")])
def test_every_command_of_a_console_exists_with_its_options(block: Block) -> None:
    lines = typed(block)
    assert lines, "a console in which nothing is typed"
    assert [text for line in lines for words in commands(line) if (text := fault(words))] == []


def test_every_command_in_the_text_exists_with_its_options() -> None:
    seen = 0
    wrong: list[str] = []
    for page in PAGES:
        for line in INLINE.findall(prose(read(page))):
            if line in MESSAGES:
                continue
            words = re.sub(r"[\[\]…]", " ", line).split()
            seen += 1
            if words[0] == "make":
                text = make_fault(shlex.split(line)[1:])
            else:
                text = " ".join(unknown_options(words))
            wrong += [f"{page.name}: {line}: {text}"] if text else []
    assert seen > 150
    assert wrong == []


def test_the_command_of_the_devcontainer_exists() -> None:
    (line,) = [
        data["postCreateCommand"]
        for block in blocks("json")
        if "postCreateCommand" in (data := json.loads(block.text))
    ]
    assert [fault(words) for words in commands(line)] == [""]


@pytest.mark.parametrize(
    "line",
    [
        "toolcell cal words",
        "toolcell call words --privat",
        "toolcell calls a b",
        "toolcell mcp instal claude",
        "toolcell logs -n many",
        "make tset",
        "make test PYTHN=python3.12",
        "pip install '.[mpc]'",
        "pip install 'toolcell[mpc] @ git+https://ADDRESS'",
        "cd x && tolcell tools",
    ],
)
def test_a_command_that_does_not_exist_is_noticed(line: str) -> None:
    assert [text for words in commands(line) if (text := fault(words))]


def test_an_option_in_the_text_that_does_not_exist_is_noticed() -> None:
    assert unknown_options(["toolcell", "-C", "DIR", "mcp", "install", "HOST", "--write"]) == []
    assert unknown_options(["toolcell", "calls", "ID", "--jsn"]) == ["--jsn"]
    assert unknown_options(["toolcell", "cals"]) == ["cals"]
