"""Plugin files for tests, and what a hostile model could pass to their tools."""

from __future__ import annotations

import inspect
import itertools
import json
from collections.abc import Mapping
from typing import Any, Final

from toolcell._authoring.discover import Export, Exports
from toolcell._plugins.load import read
from toolcell.testing import FakeContext

__all__ = [
    "ARGUMENTS",
    "DOTS",
    "PATHS",
    "SHELL",
    "URLS",
    "URL_PARTS",
    "call",
    "entry",
    "load",
    "plugin",
    "problems",
    "tool",
]

TEXT: Final = {"type": "string"}
SHELL: Final = {"type": "shell", "command": "true"}


def entry(
    handler: object, properties: Mapping[str, Any] | None = None, **others: object
) -> dict[str, object]:
    """An entry of a plugin file; the parameters are strings that may be absent, unless `inputSchema` says otherwise."""
    schema = {"type": "object", "properties": {} if properties is None else dict(properties)}
    return {"name": "it", "description": "Do it.", "inputSchema": schema, "handler": handler, **others}


def plugin(*entries: object, **others: object) -> bytes:
    """A plugin file with these entries."""
    return json.dumps({"name": "mine", "tools": list(entries), **others}).encode()


def load(*entries: object, directory: str = "/nowhere/tools") -> Exports:
    return read(plugin(*entries), directory, describe=True)


def problems(*entries: object) -> list[str]:
    """What is wrong with the entries, of which none can be used."""
    loaded = load(*entries)
    assert loaded.tools == ()
    return [problem.message for problem in loaded.problems]


def tool(handler: Mapping[str, object], *names: str, directory: str = "/nowhere/tools") -> Export:
    """The tool of a handler whose parameters are strings with these names."""
    loaded = load(entry(dict(handler), dict.fromkeys(names, TEXT)), directory=directory)
    assert loaded.problems == ()
    return loaded.tools[0]


async def call(called: Export, context: FakeContext, /, **arguments: object) -> str:
    """Call a tool as a worker does, its arguments validated."""
    value = called.invoke(called.arguments(json.dumps(arguments).encode()), context)
    value = await value if inspect.isawaitable(value) else value
    assert isinstance(value, str)
    return value


_MARK: Final = "touch escaped"
_JOINTS: Final = (
    ";",
    "|",
    "||",
    "&",
    "&&",
    "\n",
    "\r\n",
    "|&",
    ";;",
    "\t;\t",
    "%0a",
    "\v",
    "\u2028",
    "\u037e",
    "；",
)
_BEGINNINGS: Final = ("", "x", "'", '"', "x'", 'x"', "\\", "')", '")')
_WRAPPED: Final = (
    "$({})", "`{}`", "${{IFS}}{}", "<({})", ">({})", "$(({}))", "{{{},}}", "'$({})'", '"$({})"', "'`{}`'", '"`{}`"',
    "\\`{}\\`", "'; {}; '", '"; {}; "', "' {} '", '" {} "', "x > escaped # {}", "x >> escaped; {}", "x 2>escaped {}",
    "x <<< '{}'", "$'{}'", "$\"{}\"", "() {{ :; }}; {}", "!{}", "!!; {}", "*; {}", "~; {}", "{{{{value}}}} {}",
    "{{{{other}}}}; {}", "%s {}", "{{0}} {}", "$0 {}", "$@; {}", "\\x3b {}", "\\073 {}", "-- {}", "; {} #", "\x1b]0;{}\x07",
)  # fmt: skip
_PLAIN: Final = (
    "", " ", "  two  spaces  ", "\n", "\t", "'", '"', "''", '""', "\\", "\\\\", "\\'", "a\\", "'a b'", '"a b"', "' '",
    "*", "?", "[a-z]*", "~", "~root", "$HOME", "${HOME}", "$PATH", "%PATH%", "#", "# comment", "!", "^", "a=b", "@file",
    "../../etc/passwd", "/etc/passwd", "{a,b}", "{1..9}", "\u202e", "\ufeff", "é", "\U0001f4a5", "\x7f", "\x01", "\x1b[2J",
    "a" * 10_000,
)  # fmt: skip

ARGUMENTS: Final = tuple(
    dict.fromkeys((
        *(f"{start}{joint} {_MARK}" for start, joint in itertools.product(_BEGINNINGS, _JOINTS)),
        *(wrapped.format(_MARK) for wrapped in _WRAPPED),
        *_PLAIN,
    ))
)  # fmt: skip
"""Values that would become more than one argument, or a command, if something read them as a shell does."""

_CONTROLS: Final = (
    "\r\nX-Injected: 1", "\r\n\r\nGET /injected HTTP/1.1\r\nHost: x", "\nX-Injected: 1", "\rX-Injected: 1", " HTTP/1.1\r\nHost: x",
    "%0d%0aX-Injected:%201", "\u560d\u560aX-Injected: 1", "\x85X: 1", "\u2028", "\t", " ", "\x7f", "\x01", "\x1b[2J",
)  # fmt: skip
_SEPARATORS: Final = ("/", "//", "\\", "?", "??", "#", "&", "&q=other", ";", ":", "@", "%2f", "%252f", "%3f", "%23", "%26", "=", "+", "%00", ",", "|", "^", "`", "<", ">", '"', "'", "(", ")", "*", "!", "$", "[", "]", "{", "}")  # fmt: skip
_WORDS: Final = ("admin", "q=other", "x@127.0.0.1", "127.0.0.1:{other}")
URL_PARTS: Final = tuple(
    dict.fromkeys((
        *(f"{joint}{word}" for joint, word in itertools.product(_SEPARATORS, _WORDS)),
        *(f"x{text}" for text in (*_CONTROLS, *_SEPARATORS)),
        *(f"{scheme}127.0.0.1:{{other}}/" for scheme in ("http://", "//", "https://", "file://", "ftp://", "\\\\", "@", "x@", ":@")),
        "{{value}}", "{{other}}", "%7b%7bvalue%7d%7d", "\u202e", "é", "日本", "\U0001f4a5", "a" * 2000, "\u2100", "\uff0f", "\uff20",
        "...", ".a", "a.", "..a", "%2e%2e", "%2e", "%252e%252e",
    ))
)  # fmt: skip
"""Values that would lead to another path, query, header or host (`{other}` is a port) if they were not encoded."""

DOTS: Final = (
    ".", "..", "../admin", "../../admin", "..\\admin", "x/../../admin", "./admin", "x/..", "x\\..\\y", "/..", "../", "x/.",
)  # fmt: skip
"""Values that stay what they are when they are encoded, or that servers decode before they look at the path."""

_BEFORE: Final = ("", "x@", "x:y@", "127.0.0.1:{port}@", "{listed}@", "127.0.0.1%40", "127.0.0.1:{port}%2f@", "127.0.0.1:{port}\\@", "127.0.0.1:{port}#@")  # fmt: skip
_HOSTS: Final = (
    "127.0.0.1:{other}", "localhost:{other}", "127.1:{other}", "2130706433:{other}", "0x7f000001:{other}", "0177.0.0.1:{other}",
    "[::1]:{other}", "[::ffff:127.0.0.1]:{other}", "127.0.0.1.:{other}", "127.0.0.1", "127.0.0.1:", "127.0.0.1:80", "0:{other}",
    "127.0.0.1:{port}.evil.test", "127.0.0.1.evil.test:{port}", "evil.test", "①②⑦.⓪.⓪.①:{other}", "127。0。0。1:{other}", "",
    "[::1", "127.0.0.1:{port}0000", "127.0.0.1:-1", "127.0.0.1:x", "[127.0.0.1]:{port}",
)  # fmt: skip
URLS: Final = tuple(
    dict.fromkeys((
        *(f"http://{before}{host}" for before, host in itertools.product(_BEFORE, _HOSTS)),
        *(f"{scheme}127.0.0.1:{{port}}" for scheme in (
            "file://", "ftp://", "gopher://", "ws://", "javascript:", "data:", "", "//", "http:", "http:/", "htp://", "://",
            " http://", "\thttp://", "\x00http://".replace("\x00", "\x01"), "http ://", "http\n://", "url:http://", "ht\ttp://", "jar:http://",
        )),
        *(f"http://127.0.0.1:{{port}}{end}" for end in (
            "/x y", "/x\r\nX-Injected: 1", "/\r\n\r\nGET /injected", "/x\ty", "/é", "/x#", "#", "/../admin", "/./admin", "/%2e%2e/admin",
            "/x/%2e%2e%2fadmin", "/..%5cadmin", "\\admin", "/x\\..\\admin", "/`", "/|", "/{x}", "/<x>", '/"', "/x\x7f", "\u2028",
        )),
        "file:///etc/passwd", "/etc/passwd", "http:///etc/passwd", "http://", "https://", "http://?", "http:////127.0.0.1:{port}",
    ))
)  # fmt: skip
"""Whole URLs that a tool whose only host is 127.0.0.1:{port} may not request."""

_SECRET: Final = "outside/secret.txt"
_UPS: Final = tuple(f"{beginning}{'../' * depth}{_SECRET}" for beginning, depth in itertools.product(
    ("", "./", "sub/", "sub/../", "sub/./../", "/", ".//", "sub//", "missing/", "sub/deep/../../", "file.txt/"), range(1, 7),
))  # fmt: skip
_SIBLINGS: Final = tuple(
    f"{beginning}base{end}/secret.txt"
    for beginning, end in itertools.product(("../", "./../", "sub/../../", "{above}/"), ("-2", "2", "s", ".old", " ", "_"))
)  # fmt: skip
_LINKS: Final = (
    "link", "link/secret.txt", "sub/link", "sub/link/secret.txt", "to-file", "sub/to-file", "absolute", "up", "up/" + _SECRET,
    "up/base/file.txt", "loop", "loop/x", "chain", "chain/secret.txt", "link/../outside/secret.txt", "self/../../outside/secret.txt",
    "self/file.txt", "self/self/self/file.txt", "proc", "proc/self/environ", "root", "root/etc/passwd", "dangling",
)  # fmt: skip
_ELSEWHERE: Final = (
    "/etc/passwd", "//etc/passwd", "///etc/passwd", "/./etc/passwd", "/proc/self/environ", "/proc/self/root/etc/passwd",
    "/proc/self/cwd/" + _SECRET, "/dev/stdin", "/dev/fd/0", "{above}/" + _SECRET, "{above}//" + _SECRET, "{base}/../" + _SECRET,
    "{base}/./../" + _SECRET, "{base}/sub/../../" + _SECRET, "{base}-2/secret.txt", "{base}/../base-2/secret.txt", "{above}",
    "..", "../", "../..", ".", "./", "/", "", "sub", "sub/", "sub/..", "sub/../..", "fifo", "socket", "~/secret.txt",
    "~root/.profile", "$HOME/secret.txt", "..\\outside\\secret.txt", "%2e%2e/outside/secret.txt", "..%2foutside%2fsecret.txt",
    "%2e%2e%2foutside%2fsecret.txt", "..%252foutside/secret.txt", "..%c0%afoutside/secret.txt", "....//outside/secret.txt",
    "..../outside/secret.txt", "..;/outside/secret.txt", ".. /outside/secret.txt", " ../outside/secret.txt",
    "\u2025/outside/secret.txt", "\uff0e\uff0e/outside/secret.txt", "..\u2215outside/secret.txt", "..\uff0foutside/secret.txt",
    "file:///etc/passwd",  "file.txt/..", "file.txt/../../outside/secret.txt", "a" * 300, "a/" * 3000 + "a", "../" * 3000,
)  # fmt: skip
PATHS: Final = tuple(dict.fromkeys((*_UPS, *_SIBLINGS, *_LINKS, *_ELSEWHERE)))
"""Paths out of a directory `base`, with `{base}` and `{above}` for it and the one above; none is that of a file in it."""
