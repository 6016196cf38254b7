"""Mutated tool files: a daemon lists them as tools or as problems, and the other files go on working.

Each file is read as bytes, run in a cell of its own, described, and listed. `test_tool_files` has the loader alone.
"""

from __future__ import annotations

import codecs
import json
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st
from tests.daemons import RunningDaemon
from tests.fuzz.conftest import tried
from tests.process.wire import bearer

from toolcell import _paths
from toolcell_proto.v1 import toolcell_pb2 as pb

ROUNDS: Final = 3
FILES: Final = 4
"""In a round; all of them are described at the same time."""
SECONDS_MAX: Final = 40.0
"""ListTools itself waits for 25 s."""
ROOT: Final = Path(__file__).parents[2]
REAL: Final = tuple(
    path.read_text(encoding="utf-8")
    for directory in ("examples/tools", "tests/tools", "tests/tools/broken")
    for path in sorted((ROOT / directory).glob("*.py"))
    if path.name not in {"hangs.py", "slow.py"}  # ten seconds each; other tests have them
)
GOOD: Final = """
    from toolcell import tool

    @tool
    def good(n: int) -> int:
        return n + 1
"""

ODD_WORDS: Final = (
    "@tool", "@tool(", "async ", "await ", "yield ", "lambda: ", "def ", "class ", "*", "**", "/", "...", "None", "-1",
    "'\\ud800'", "b'\\xff'", "9" * 5000, "1e999", "object()", "type", "tool", "__name__", "__file__", "\t", "\n", "\\\n",
    "\r", "\f", "\0", "\x1a", "\u2028", "\ufeff", "#", '"""', "{", "(", "]", ":=", "->", "import sys\n", "del tool\n",
    "raise SystemExit\n", "raise MemoryError\n", "raise RecursionError\n", "global tool\n", "return\n", "match 1:\n",
)  # fmt: skip
COOKIES: Final = (
    "utf-8", "latin-1", "utf-7", "utf-16", "utf-32-be", "utf-8-sig", "cp037", "shift_jis", "rot13", "punycode", "idna",
    "hex", "unicode_escape", "raw_unicode_escape", "undefined", "nowhere", "", "\u00e9", "x" * 5000, "utf-8\0",
)  # fmt: skip
DEEP: Final[tuple[Callable[[int], str], ...]] = (
    lambda depth: "x = " + "(" * depth + ")" * depth,
    lambda depth: "x = " + "[" * depth + "]" * depth,
    lambda depth: "x = " + "-" * depth + "1",
    lambda depth: "x = " + "lambda: " * depth + "1",
    lambda depth: "x = " + "1 + " * depth + "1",
    lambda depth: "x = a" + ".a" * depth,
    lambda depth: "".join(" " * level + "if 1:\n" for level in range(min(depth, 2000))) + " " * min(depth, 2000) + "1",
    lambda depth: "@tool\n" * depth + "def f() -> None: ...",
    lambda depth: f"@tool\ndef f(a: {'list[' * depth}int{']' * depth}) -> None: ...",
    lambda depth: f"@tool\ndef f(a: {'int | ' * depth}None) -> None: ...",
    lambda depth: f"@tool\ndef f({', '.join(f'a{number}: int' for number in range(depth))}) -> None: ...",
    lambda depth: f"t = int\nfor _ in range({depth}):\n    t = list[t]\n@tool\ndef f(a: t) -> None: ...",
    lambda depth: f"d = []\nfor _ in range({depth}):\n    d = [d]\n@tool\ndef f(a: object = d) -> None: ...",
    lambda depth: f'@tool\ndef f() -> None:\n    """{"y" * depth * 40}"""',
    lambda depth: f"def f(n): return f(n - 1) if n else 1\nf({depth})",
    lambda depth: f"raise ValueError('z' * {depth * 1000})",
    lambda depth: f"e = ValueError()\nfor _ in range({depth}):\n    e = ExceptionGroup('e', [e])\nraise e",
)  # fmt: skip


@st.composite
def tokens(draw: st.DrawFn, text: str) -> bytes:
    """The file with some words removed, doubled, swapped or replaced."""
    words = re.findall(r"\w+|\s+|[^\w\s]", text) or [""]
    for _ in range(draw(st.integers(1, 4))):
        place, other = draw(st.integers(0, len(words) - 1)), draw(st.integers(0, len(words) - 1))
        match draw(st.integers(0, 4)):
            case 0:
                words[place] = ""
            case 1:
                words[place] *= 2
            case 2:
                words[place], words[other] = words[other], words[place]
            case 3:
                words[place] = words[other]
            case _:
                words[place] = draw(st.sampled_from(ODD_WORDS))
    return "".join(words).encode("utf-8", "surrogatepass")


@st.composite
def noise(draw: st.DrawFn, text: str) -> bytes:
    """The file with random bytes inserted, cut short, or replaced by random bytes."""
    data = text.encode()
    place = draw(st.integers(0, len(data)))
    some = draw(
        st.binary(min_size=1, max_size=20) | st.sampled_from((b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\r"))
    )
    return draw(st.sampled_from((data[:place] + some + data[place:], data[:place], some, some * 2000)))


@st.composite
def encoded(draw: st.DrawFn, text: str) -> bytes:
    """The file with a declared encoding, in which it may be written."""
    cookie = draw(st.sampled_from(COOKIES))
    start = draw(st.sampled_from(("", "#!/bin/sh\n", "\n\n")))
    line = f"{start}# -*- coding: {cookie} -*-\n"
    mark = draw(st.sampled_from((b"", b"", codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF32_BE)))
    try:
        data = (line + text).encode(cookie if draw(st.booleans()) else "utf-8", "replace")
    except (LookupError, UnicodeError, ValueError):
        data = (line + text).encode()
    return mark + data


@st.composite
def deep(draw: st.DrawFn, text: str) -> bytes:
    """A file with a very deep or very long construct."""
    one = draw(st.sampled_from(DEEP))(draw(st.sampled_from((10, 90, 150, 300, 1000, 20_000))))
    return f"from toolcell import tool\n{text if draw(st.booleans()) else ''}\n{one}\n".encode()


def mutated() -> st.SearchStrategy[bytes]:
    return st.sampled_from(REAL).flatmap(lambda text: tokens(text) | noise(text) | encoded(text) | deep(text))


@pytest.fixture
def daemon(make_daemon: Callable[[], RunningDaemon]) -> Iterator[RunningDaemon]:
    """A daemon whose log must stay free of errors."""
    daemon = make_daemon()
    daemon.start()
    yield daemon
    log = daemon.log.read_text()
    assert " ERROR " not in log, log


def ask(channel: Any, token: Any, method: str, request: Message, kind: Any) -> list[Any]:
    """The answers of a daemon."""
    streams = method == "CallTool"
    rpc = (channel.unary_stream if streams else channel.unary_unary)(f"/toolcell.v1.ToolCell/{method}")
    answered = rpc(request.SerializeToString(), metadata=token, timeout=SECONDS_MAX)
    return [kind.FromString(answer) for answer in (answered if streams else [answered])]


def is_python(content: bytes) -> bool:
    """Whether it may be a file without a tool, which is not listed; a file that does not compile is a problem."""
    try:
        with warnings.catch_warnings(action="ignore"):
            compile(content, "odd.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    except (MemoryError, RecursionError):
        return True  # the depth that is too deep depends on the process
    return True


@pytest.mark.slow
@tried(ROUNDS)
@given(contents=st.lists(mutated(), min_size=FILES, max_size=FILES))
def test_a_changed_file_is_tools_or_problems_and_the_others_work(
    contents: list[bytes], daemon: RunningDaemon
) -> None:
    directory = daemon.tool("good", GOOD).parent
    for number, content in enumerate(contents):
        (directory / f"odd_{number}.py").write_bytes(content)
    token = bearer(_paths.agent_token_path(daemon.socket))
    options = (("grpc.use_local_subchannel_pool", 1),)
    with grpc.insecure_channel(f"unix:{daemon.socket}", options=options) as channel:
        place = str(daemon.project)
        (found,) = ask(
            channel, token, "ListTools", pb.ListToolsRequest(directory=place), pb.ListToolsResponse
        )
        call = pb.Call(tool="good", arguments=json.dumps({"n": len(contents[0])}).encode())
        request = pb.CallToolRequest(call=call, directory=place)
        *_, last = ask(channel, token, "CallTool", request, pb.CallToolResponse)
    assert [tool.name for tool in found.catalog.tools if Path(tool.path).name == "good.py"] == ["good"]
    for problem in found.catalog.problems:
        assert problem.reason in {"broken", "rejected", "shadowed", "stale", "unused"}
        assert problem.message
        assert "a bug" not in problem.message
    known = {Path(one.path).name for one in (*found.catalog.tools, *found.catalog.problems)}
    for number, content in enumerate(contents):
        assert f"odd_{number}.py" in known or is_python(content), content
    assert last.event.outcome.kind == pb.OUTCOME_KIND_OK, last
    assert json.loads(last.event.outcome.body)["details"] == len(contents[0]) + 1
