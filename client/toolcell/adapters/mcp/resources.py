"""Outputs that were cut, as resources: a host lists those of its session and reads any range of them.

`toolcell://output/ID` is an output, and `?start=…&length=…` a range of its bytes. One read has a bound, as a message has;
the `_meta` of the contents says which bytes they are. An output never changes, and is there until it expires.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl

from mcp import MCPError, types

from toolcell.adapters import read_output
from toolcell.adapters.mcp.offers import not_found
from toolcell.client import Output, Refused, Session, Unavailable

URI = "toolcell://output/"
TEMPLATE = f"{URI}{{output_id}}{{?start,length}}"
OUTPUTS_MAX = 100
"""That are listed, the newest first; as many as one answer of a completion may have."""
READ_BYTES_MAX = 256 * 1024
"""Of one read, also where the host says no length."""


class KeptOutputs:
    """The outputs of one session that were cut."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Output, str]] = {}

    def add(self, output: Output, tool: str) -> dict[str, Any]:
        """Keep an output in the list; return the link to it."""
        self._kept[output.id] = output, tool
        while len(self._kept) > OUTPUTS_MAX:
            del self._kept[next(iter(self._kept))]
        described = _resource(output, tool).model_dump(by_alias=True, mode="json", exclude_none=True)
        return {"type": "resource_link", **described}

    def clear(self) -> None:
        """Forget all: the session that had them has ended."""
        self._kept.clear()

    def listed(self) -> list[types.Resource]:
        """Those that have not expired, the newest first."""
        now = datetime.now(UTC)
        for output, _ in list(self._kept.values()):
            if output.expires_at is not None and output.expires_at <= now:
                del self._kept[output.id]
        return [_resource(output, tool) for output, tool in reversed(self._kept.values())]

    def complete(self, params: types.CompleteRequestParams) -> types.Completion:
        """The ids that begin as what was typed; nothing for another argument of the template."""
        if params.argument.name != "output_id":
            return types.Completion(values=[], total=0, has_more=False)
        ids = [resource.uri.removeprefix(URI) for resource in self.listed()]
        found = [each for each in ids if each.startswith(params.argument.value)]
        return types.Completion(values=found, total=len(found), has_more=False)


def template() -> types.ResourceTemplate:
    """What a host can read of outputs beyond the list."""
    return types.ResourceTemplate(
        uri_template=TEMPLATE,
        name="output",
        title="Output of a tool",
        description="The whole of a result that was cut, or `length` bytes of it from byte `start` on.",
        mime_type="text/plain",
    )


async def read(session: Session, uri: str) -> types.ReadResourceResult:
    """An output, or a range of it, within the bound. Raises MCPError."""
    output_id, _, query = uri.removeprefix(URI).partition("?")
    ranges = dict(parse_qsl(query))
    start, length = ranges.pop("start", "0"), ranges.pop("length", str(READ_BYTES_MAX))
    if not output_id.isascii() or not output_id or ranges:
        raise not_found(uri)
    if not all(text.isascii() and text.isdigit() and len(text) < 19 for text in (start, length)) or not int(
        length
    ):
        raise MCPError(types.INVALID_PARAMS, "start and length are numbers of bytes.", {"uri": uri})
    try:
        data = await session.read_output(output_id, start=int(start), length=min(int(length), READ_BYTES_MAX))
    except Refused as error:
        raise not_found(uri) from error
    except Unavailable as error:
        raise MCPError(types.INTERNAL_ERROR, str(error)) from error
    before, text, after = read_output.whole(data)
    first = int(start) + before
    meta = {"toolcell/start": first, "toolcell/end": int(start) + len(data) - after}
    contents = types.TextResourceContents(uri=uri, mime_type="text/plain", text=text, _meta=meta)
    return types.ReadResourceResult(contents=[contents])


def _resource(output: Output, tool: str) -> types.Resource:
    return types.Resource(
        uri=f"{URI}{output.id}",
        name=output.id,
        title=f"Output of {tool}",
        description=f"The {output.source} of a call of {tool}, {output.lines} lines.",
        mime_type="text/plain",
        size=output.kept_bytes,
    )
