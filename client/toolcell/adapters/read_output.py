"""How an agent reads on where an output was cut: a tool of ours, and the line that points to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from toolcell.client import Catalog, Kind, Limits, Outcome, Refused, Session, Text, ToolInfo, Unavailable

READ_OUTPUT = ToolInfo(
    name="toolcell_read_output",
    description="Read more of a tool's output that was too long to be shown whole.",
    input_schema={
        "type": "object",
        "properties": {
            "output_id": {"type": "string", "description": "As the note below the output that was cut names it."},
            "start": {"type": "integer", "minimum": 0, "default": 0, "description": "The first byte, from 0."},
            "length": {"type": "integer", "minimum": 1, "description": "Bytes, as many as are shown if left out."},
        },
        "required": ["output_id"],
        "additionalProperties": False,
    },
    scope="toolcell",
    path="",
    read_only=True,
    destructive=False,
    idempotent=True,
    network=False,
)  # fmt: skip
HANDLE_BYTES_MAX = 400
"""Of the note below an output that was cut, and of the one above a range of it: room that limits leave."""
SHOWN_BYTES_MAX = 50_000


def offered(catalog: Catalog) -> Mapping[str, ToolInfo]:
    """The tools of a catalog, and ours; a user's tool of the same name wins."""
    return {**catalog.tools, READ_OUTPUT.name: catalog.tools.get(READ_OUTPUT.name, READ_OUTPUT)}


def is_ours(tool: str, catalog: Catalog) -> bool:
    """Whether a call is for the tool that is offered here, and not for the daemon."""
    return tool == READ_OUTPUT.name and tool not in catalog.tools


def with_handle(outcome: Outcome) -> Outcome:
    """The outcome with a note below an output that was cut."""
    output = outcome.output
    if output is None:
        return outcome
    call = f'{READ_OUTPUT.name}(output_id="{output.id}", start=0)'
    reason = f" ({output.reason})" if output.reason else ""
    if output.complete:
        note = f"\n[The whole output has {output.bytes} bytes: {call}.]"
    elif output.id:
        note = f"\n[The output had {output.bytes} bytes, of which {output.kept_bytes} were kept{reason}: {call}.]"
    else:
        note = (
            f"\n[The output had {output.bytes} bytes, of which no more could be kept than is shown{reason}.]"
        )
    return replace(outcome, content=(*outcome.content, Text(note)))


async def read(session: Session, arguments: Mapping[str, object], limits: Limits) -> Outcome:
    """What the tool of ours answers."""
    output_id, start, length = (arguments.get(name) for name in ("output_id", "start", "length"))
    shown = limits.get("output_bytes")
    most = shown if isinstance(shown, int) else SHOWN_BYTES_MAX
    if not isinstance(output_id, str) or not output_id.isascii() or not output_id:
        return _wrong("output_id: should be the id that the note below an output names")
    if (first := _count(start, 0)) is None:
        return _wrong(f"start: should be a number of bytes, got {start!r}")
    if not (many := _count(length, most)):
        return _wrong(f"length: should be a number of bytes above 0, got {length!r}")
    try:
        data = await session.read_output(output_id, start=first, length=min(many, most))
    except (Refused, Unavailable) as error:
        return Outcome(Kind.refused, message=str(error))
    if not data:
        return Outcome(Kind.ok, content=(Text(f"[nothing: the output has no byte {first}]"),))
    data = _lines(data, limits.get("output_lines"))
    before, text, after = whole(data)
    begin, end = first + before, first + len(data) - after
    return Outcome(Kind.ok, content=(Text(f"[bytes {begin} to {end - 1}; the next: start={end}]\n{text}"),))


def _count(value: object, otherwise: int) -> int | None:
    """A number of bytes; None for what is none."""
    if value is None:
        return otherwise
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62 else None


def _wrong(message: str) -> Outcome:
    return Outcome(Kind.invalid_arguments, message=f"{READ_OUTPUT.name}: invalid_arguments: {message}.")


def _lines(data: bytes, lines_max: int | None) -> bytes:
    """As many of its lines as are shown, the line above them counted."""
    if lines_max is None or data.count(b"\n") < lines_max:
        return data
    lines = data.split(b"\n", max(1, lines_max - 1))
    return data[: len(data) - len(lines[-1])]


def whole(data: bytes) -> tuple[int, str, int]:
    """A range as text without the halves of characters at its ends, and how many bytes those were."""
    before = next((place for place, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), 0)
    after = 0
    for back in range(1, min(4, len(data) - before) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:  # the first byte of the last character; its length is in its upper bits
            length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            after = back if length > back else 0
            break
    return before, data[before : len(data) - after].decode(errors="replace"), after
