"""What the model may read of an exception that was not meant for it: class and message, without paths.

Directories of a machine are private, but a model needs to know which file failed.
So a path below a known root is shown relative to it, and of any other absolute path only its last part.
URLs stay: they are not paths of this machine.
What says more than one line is told within a bound: a long message, notes, each exception of a group, explicit causes, and
what a failed program printed.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, cast

from toolcell._results.errors import ToolError
from toolcell._results.json_value import whole

DESCRIPTION_CHARACTERS_MAX = 512
TEXT_CHARACTERS_MAX = 2000
"""Of all lines; a model reads them with every failure."""
LEAVES_MAX = 5
CAUSES_MAX = 3
LINES_MAX = 5
MESSAGE_LINES_MAX = 20
_PYTHON = os.path.dirname(os.__file__) + os.sep
_ADDRESS = "    For further information visit https://errors.pydantic.dev/"
LINE_MAX = 200
PRINTED_MAX = 8 * LINES_MAX * LINE_MAX
_NOT_KEPT = (
    "What it printed is in the log of the call; with stderr=subprocess.PIPE its last lines are told here."
)

_PLACES = re.compile(
    r"""(?P<url>\b(?!file:)[a-z][a-z0-9+.-]{0,31}://\S+)   # kept
      | (?P<quote>['"])(?P<quoted>/[^'"\n]*)(?P=quote)  # may contain spaces
      | (?<![\w.)])(?P<bare>/+[^\s'":,;()<>|*?\[\]{}]+)""",
    re.VERBOSE | re.IGNORECASE,
)


def describe_exception(error: BaseException, roots: Sequence[str] = ()) -> str:
    """Class, message, notes and causes of an exception, at most 2000 characters; a ToolError speaks for itself.

    Of a group the first exceptions are told, of a failed program the last lines that were kept of its output, and of a
    mistake in code that `exec` or an import has read its line, with carets below it. Paths
    below `roots` are shown relative to them, others shortened to their last part.
    """
    if isinstance(error, ToolError):
        return "\n".join([whole(_text(error)), *_notes(error, roots)])
    leaves = list(itertools.islice(_members(error, groups=False), LEAVES_MAX + 1))
    lines: list[str] = []
    for leaf in leaves[:LEAVES_MAX]:
        lines += _lines(leaf, roots)
        lines += (redacted(line, roots) for line in _printed(leaf))
        lines += _causes(leaf, roots, lines)
    if len(leaves) > LEAVES_MAX:
        lines.append("and more")
    for group in itertools.islice(_members(error, groups=True), LEAVES_MAX):
        lines += _notes(group, roots)
        lines += _causes(group, roots, lines)
    text = "\n".join(lines)
    return text if len(text) <= TEXT_CHARACTERS_MAX else f"{text[: TEXT_CHARACTERS_MAX - 1]}…"


def _lines(error: BaseException, roots: Sequence[str]) -> list[str]:
    """The class and the message of one exception, and its notes."""
    first, *rest = _said(error) or [""]
    shown = [_line(error, first, roots), *(_shown(line, roots) for line in rest[: MESSAGE_LINES_MAX - 1])]
    if len(rest) >= MESSAGE_LINES_MAX:
        shown.append("…")
    return shown + marked(error) + _notes(error, roots)


def marked(error: BaseException) -> list[str]:
    """The line of a mistake in code with carets below it, as two lines; none where the exception does not say it."""
    if not isinstance(error, SyntaxError):
        return []
    text, start, end = cast("tuple[object, object, object]", (error.text, error.offset, error.end_offset))
    if type(text) is not str or type(start) is not int:  # a tool can raise one of its own
        return []
    shown = text.rstrip().lstrip()
    first = max(start - 1 - (len(text) - len(text.lstrip())), 0)
    if not shown or not shown.isprintable() or first > len(shown) or len(shown) > LINE_MAX:
        return []
    ends_here = type(end) is int and end > start and error.end_lineno in (None, error.lineno)
    last = min(first + (end - start if ends_here and type(end) is int else 1), len(shown))
    return [f"  {shown}", f"  {' ' * first}{'^' * max(last - first, 1)}"]


def _said(error: BaseException) -> list[str]:
    """The lines of a message that have something in them, without pydantic's addresses of its pages."""
    text = _text(error)[: 8 * TEXT_CHARACTERS_MAX].strip()
    return [line.rstrip() for line in text.splitlines() if line.strip() and not line.startswith(_ADDRESS)]


def _notes(error: BaseException, roots: Sequence[str]) -> list[str]:
    notes: object = getattr(error, "__notes__", None)
    texts = cast("list[object]", notes)[:LINES_MAX] if isinstance(notes, list) else []
    lines = [
        line for note in texts if isinstance(note, str) for line in note[:TEXT_CHARACTERS_MAX].splitlines()
    ]
    return [_shown(line, roots) for line in lines[:MESSAGE_LINES_MAX]]


def _causes(error: BaseException, roots: Sequence[str], lines: Sequence[str]) -> Iterator[str]:
    """A line for each explicit cause whose message is not told already; of a group, for its first exceptions."""
    told = "\n".join(lines)
    cause = error.__cause__
    for _ in range(CAUSES_MAX):
        if cause is None:
            return
        for leaf in itertools.islice(_members(cause, groups=False), CAUSES_MAX):
            first = next(iter(_said(leaf)), "")
            if not first or _shown(first, roots) not in told:
                yield f"caused by {_line(leaf, first, roots)}"
        cause = cause.__cause__


def _shown(line: str, roots: Sequence[str]) -> str:
    # Cut generously before the expression runs, exactly after.
    shown = redacted(whole(line[: 8 * DESCRIPTION_CHARACTERS_MAX]), roots)
    return _cut(shown)


def _line(error: BaseException, first: str, roots: Sequence[str]) -> str:
    if isinstance(error, SystemExit):
        code = redacted(exit_code(error), roots)
        return f"the tool called sys.exit({code}); a tool ends with its result: return it"
    name = type(error).__qualname__
    line = redacted(whole(first.strip()[: 8 * DESCRIPTION_CHARACTERS_MAX]), roots)
    return _cut(f"{name}: {line}" if line else f"{name}{_raised_by(error, roots)}")


def _raised_by(error: BaseException, roots: Sequence[str]) -> str:
    """What raised an exception without a message, as `assert` does: the line of the tool's own code; "" where none is known."""
    import linecache  # for these alone

    own: FrameType | None = None
    line, entry = 0, error.__traceback__
    while entry is not None:
        if _is_own(entry.tb_frame):
            own, line = entry.tb_frame, entry.tb_lineno
        entry = entry.tb_next
    if own is None:
        return ""
    file = own.f_code.co_filename
    try:
        text = linecache.getline(file, line, own.f_globals).strip()
    except Exception:  # noqa: BLE001  a loader of the tool's may raise anything
        return ""
    return (
        f", raised in line {line} of {os.path.basename(file)}: {redacted(whole(text[:LINE_MAX]), roots)}"
        if text
        else ""
    )


def _is_own(frame: FrameType) -> bool:
    """Whether code is that of a tool, and not of Python, of a package or of ours."""
    file, module = frame.f_code.co_filename, frame.f_globals.get("__name__")
    if not os.path.isabs(file) or "site-packages" in file or file.startswith(_PYTHON):
        return False
    return not isinstance(module, str) or module.partition(".")[0] not in ("toolcell", "toolcelld")


def redacted(text: str, roots: Sequence[str] = ()) -> str:
    """The text with every absolute path shortened."""
    ordered = sorted((os.path.normpath(root) for root in roots), key=len, reverse=True)

    def shortened(match: re.Match[str]) -> str:
        if match["url"]:
            return match[0]
        quote = match["quote"] or ""
        return f"{quote}{_short(match['quoted'] or match['bare'], ordered)}{quote}"

    return _PLACES.sub(shortened, text)


def _short(path: str, roots: Sequence[str]) -> str:
    plain = os.path.normpath("/" + path.strip("/"))
    for root in roots:
        if plain == root:
            return "."
        if root != "/" and plain.startswith(root + "/"):
            return plain[len(root) + 1 :]
    parent, _, name = plain.rpartition("/")
    return f"…/{name}" if parent else plain


def _members(error: BaseException, *, groups: bool) -> Iterator[BaseException]:
    """The groups that an exception is made of, itself and those in it; or what is in them, whose own lines say more."""
    pending = [error]
    while pending:
        one = pending.pop()
        is_group = isinstance(one, BaseExceptionGroup)
        if is_group:
            pending += reversed(cast("BaseExceptionGroup[BaseException]", one).exceptions)
        if is_group is groups:
            yield one


def exit_code(error: SystemExit) -> str:
    """What `sys.exit` was called with, as Python writes it; empty for nothing."""
    code = cast("object", error.code)
    if code is None:
        return ""
    import reprlib  # for these alone

    short = reprlib.Repr()
    # It leaves out the middle, which is cut off below: only there it may have parts of a secret on both sides.
    short.maxstring = short.maxother = short.maxlong = 8 * DESCRIPTION_CHARACTERS_MAX
    short.maxdict = short.maxlist = short.maxtuple = short.maxset = MESSAGE_LINES_MAX
    try:
        return _cut(whole(short.repr(code)))
    except Exception:  # noqa: BLE001  a tool's own class, or an integer of more digits than Python writes
        return f"a {type(code).__name__}"


def _printed(error: BaseException) -> list[str]:
    """The last lines of the output of a failed program, if the tool has kept it: of stderr, or else of stdout."""
    subprocess = sys.modules.get("subprocess")
    if subprocess is None or not isinstance(error, subprocess.CalledProcessError):
        return []
    failed: Any = error
    for output in (failed.stderr, failed.stdout):
        text = output[-PRINTED_MAX:] if isinstance(output, str | bytes) else ""
        text = text.decode(errors="replace") if isinstance(text, bytes) else text
        if lines := [line[:LINE_MAX] for line in text.splitlines() if line.strip()]:
            return lines[-LINES_MAX:]
    return [_NOT_KEPT] if failed.stderr is None else []


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  a tool's own exception with a __str__ that raises
        return "(its message cannot be shown)"


def _cut(text: str) -> str:
    """Return a text or its beginning. The ellipsis says so: a secret is looked for before it that is not whole."""
    if len(text) <= DESCRIPTION_CHARACTERS_MAX:
        return text
    return text[: DESCRIPTION_CHARACTERS_MAX - 1] + "…"
