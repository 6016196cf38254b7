"""Messages of the contract without protobuf's library, for `toolcell call`, whose process would import it for one call.

A message is described by a table: of each field its number, its name and its type. `decode` makes a WireMessage of bytes, whose
attributes are the fields of the table; a field that is absent has the default of its type, and fields that the table does
not have are skipped, as a newer daemon may send them. `encode` makes bytes of a mapping.

The tables have the fields that are read here and no more. A test holds them against the descriptors of the contract.
The peer may send anything: what is no message raises Malformed, whatever it is.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TypeAlias

    Type: TypeAlias = "str | Table"
    Table: TypeAlias = Mapping[int, tuple[str, Type]]

PROTOCOL = 1
"""The version of the contract that the client speaks."""
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
"""The wire types that there are; groups (3 and 4) are not in proto3."""
_SIZES = {FIXED64: 8, FIXED32: 4}
_KINDS = {"bool": VARINT, "uint": VARINT, "int": VARINT, "double": FIXED64}
"""The wire types of the types of fields; of all others it is LENGTH."""
_DEFAULTS = {"bool": False, "uint": 0, "int": 0, "double": 0.0, "bytes": b"", "string": ""}
VARINT_BYTES_MAX = 10
FIELD_NUMBER_MAX = 2**29 - 1

# A type is "bool", "uint" (uint32, uint64), "int" (int32, int64 and enums), "double", "bytes", "string", or a table for a
# message. A name with "*" before it is of a repeated field, one with "?" of a field whose presence is told (`has`), as that
# of each message is.

TIMESTAMP: Table = {1: ("seconds", "int"), 2: ("nanos", "int")}
OUTPUT: Table = {
    1: ("output_id", "string"),
    2: ("total_bytes", "uint"),
    3: ("kept_bytes", "uint"),
    4: ("total_lines", "uint"),
    5: ("complete", "bool"),
    6: ("expires", TIMESTAMP),
    7: ("source", "string"),
    8: ("reason", "string"),
}
FACTS: Table = {
    1: ("queue_seconds", "double"),
    2: ("run_seconds", "double"),
    3: ("cpu_seconds", "double"),
    4: ("memory_peak_bytes", "uint"),
    5: ("output_bytes", "uint"),
    6: ("spilled_bytes", "uint"),
    7: ("worker_id", "string"),
    8: ("generation", "uint"),
    9: ("leftover_processes", "uint"),
    10: ("leftover_threads", "uint"),
    11: ("state_lost", "bool"),
    12: ("stop_seconds", "double"),
    13: ("killed_processes", "uint"),
    14: ("*logs", OUTPUT),
    15: ("*refused_hosts", "string"),
    16: ("*moved_aside", "string"),
    17: ("node", "string"),
    18: ("fence", "uint"),
}
OUTCOME: Table = {
    1: ("kind", "int"),
    2: ("cause", "string"),
    3: ("message", "string"),
    4: ("body", "bytes"),
    5: ("more", "bool"),
    6: ("metadata", "bytes"),
    7: ("output", OUTPUT),
    8: ("ran", "bool"),
    9: ("stopped", "int"),
    10: ("side_effects_possible", "bool"),
    11: ("facts", FACTS),
    12: ("*notes", "string"),
}
ANY: Table = {1: ("type_url", "string"), 2: ("value", "bytes")}
STATUS: Table = {1: ("code", "int"), 2: ("message", "string"), 3: ("*details", ANY)}
ERROR_INFO: Table = {1: ("reason", "string"), 2: ("domain", "string")}
BAD_REQUEST: Table = {1: ("*field_violations", {1: ("field", "string"), 2: ("description", "string")})}
QUOTA_FAILURE: Table = {1: ("*violations", {1: ("subject", "string"), 2: ("description", "string")})}
RETRY_INFO: Table = {1: ("retry_delay", {1: ("seconds", "int"), 2: ("nanos", "int")})}
CHUNK: Table = {1: ("call_id", "string"), 2: ("data", "bytes"), 3: ("last", "bool")}
EVENT: Table = {
    1: ("number", "uint"),
    2: ("call_id", "string"),
    4: ("welcome", {}),
    5: (
        "catalog",
        {2: ("*tools", {1: ("name", "string"), 3: ("input_schema", "bytes")}), 4: ("last", "bool")},
    ),
    8: ("started", {3: ("timeout_seconds", "double")}),
    9: ("update", {2: ("more", "bool")}),
    10: ("progress", {1: ("done", "double"), 2: ("?total", "double"), 3: ("message", "string")}),
    11: ("metadata", {}),
    12: ("log", {1: ("level", "string"), 2: ("source", "string"), 3: ("text", "string")}),
    13: (
        "ask",
        {
            1: ("ask_id", "uint"),
            2: ("question", "string"),
            4: ("*patterns", "string"),
            5: ("*always", "string"),
        },
    ),
    14: ("outcome", OUTCOME),
    15: ("refused", STATUS),
    16: ("gap", {}),
    17: ("chunk", CHUNK),
    18: ("request", {1: ("ask_id", "uint"), 2: ("service", "string"), 3: ("arguments", "bytes")}),
}
ATTACH_RESPONSE: Table = {1: ("*events", EVENT)}
ATTACH_REQUEST: Table = {
    1: ("acknowledged", "uint"),
    2: (
        "open",
        {
            1: ("protocol", "uint"),
            2: ("client_version", "string"),
            3: ("agent", "string"),
            4: ("directory", "string"),
            7: ("*allow", "string"),
            9: ("?linger_seconds", "double"),
            10: ("answers", "bool"),
            13: ("*services", "string"),
            14: ("at_once", "bool"),
        },
    ),
    3: (
        "call",
        {
            1: ("call_id", "string"),
            2: ("tool", "string"),
            3: ("arguments", "bytes"),
            8: ("limits", {1: ("?timeout_seconds", "double")}),
        },
    ),
    5: ("abort", {1: ("call_id", "string"), 2: ("reason", "string")}),
    6: (
        "answer",
        {1: ("call_id", "string"), 2: ("ask_id", "uint"), 3: ("allowed", "bool"), 4: ("always", "bool")},
    ),
    8: ("close", {}),
    9: (
        "reply",
        {1: ("call_id", "string"), 2: ("ask_id", "uint"), 3: ("result", "bytes"), 4: ("message", "string")},
    ),
}


CALL_INFO: Table = {
    1: ("call_id", "string"),
    2: ("session_id", "string"),
    3: ("tool", "string"),
    4: ("state", "string"),
    5: ("accepted", TIMESTAMP),
    6: ("worker_id", "string"),
    7: ("agent", "string"),
    8: ("agent_name", "string"),
    9: ("directory", "string"),
    10: ("outcome", OUTCOME),
    13: ("refusal_reason", "string"),
    14: ("refusal", "string"),
}
LIST_CALLS_RESPONSE: Table = {1: ("*calls", CALL_INFO), 2: ("records_fault", "string")}
GET_CALL_REQUEST: Table = {1: ("call_id", "string")}
GET_CALL_RESPONSE: Table = {
    1: ("call", CALL_INFO),
    2: ("*story", {1: ("time", TIMESTAMP), 2: ("text", "string")}),
    3: ("arguments", "string"),
    5: ("result", "string"),
}
LIST_WORKERS_RESPONSE: Table = {
    1: (
        "*workers",
        {
            1: ("worker_id", "string"),
            2: ("state", "string"),
            3: ("path", "string"),
            4: ("pid", "uint"),
            6: ("calls", "uint"),
            8: ("since", TIMESTAMP),
            7: ("started", TIMESTAMP),
            9: ("call_id", "string"),
            12: ("memory_bytes", "uint"),
            13: ("directory", "string"),
            14: (
                "server",
                {
                    1: ("name", "string"),
                    2: ("running", "uint"),
                    3: ("places", "uint"),
                    4: ("sessions", "uint"),
                    5: ("starts", "uint"),
                },
            ),
        },
    ),
    2: (
        "*quarantined",
        {
            1: ("path", "string"),
            2: ("since", TIMESTAMP),
            3: ("*deaths", {2: ("cause", "string")}),
            4: ("by", "string"),
        },
    ),
}
GET_STATUS_RESPONSE: Table = {
    1: ("state", "string"),
    2: ("version", "string"),
    4: ("pid", "uint"),
    5: ("started", TIMESTAMP),
    6: ("socket", "string"),
    7: ("sessions", "uint"),
    8: ("workers", "uint"),
    9: ("calls", "uint"),
    10: ("calls_ended", "uint"),
    11: ("memory_bytes", "uint"),
    13: ("spill_bytes", "uint"),
    14: ("spill_quota_bytes", "uint"),
    15: ("*config_files", "string"),
    17: ("blanks", "uint"),
    18: ("quarantined", "uint"),
    19: ("state_directory", "string"),
    20: ("log", "string"),
    21: ("*disabled", {1: ("tool", "string"), 2: ("since", TIMESTAMP), 3: ("reason", "string")}),
    22: ("records_bytes", "uint"),
    23: ("records_lost", "uint"),
    24: ("records_fault", "string"),
    25: ("?drained", "string"),
    26: ("log_level", "string"),
    27: ("log_level_until", TIMESTAMP),
    28: ("*notices", "string"),
}
LIST_TOOLS_REQUEST: Table = {1: ("directory", "string")}
LIST_TOOLS_RESPONSE: Table = {
    1: ("catalog", {2: ("*tools", {1: ("name", "string"), 3: ("input_schema", "bytes")})})
}
LIST_SESSIONS_RESPONSE: Table = {1: ("*sessions", {1: ("session_id", "string")})}


class Malformed(ValueError):
    """What came is no message; the text says why."""


class WireMessage:
    """A message: its fields are attributes, and `has` are the names of those that were there."""

    has: set[str]

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def HasField(self, name: str) -> bool:  # noqa: N802  # as protobuf's messages have it, for those who read either
        """Return whether a message or an optional field is there."""
        return name in self.has


def decode(table: Table, data: bytes) -> WireMessage:
    """Read a message. Raises Malformed."""
    record = WireMessage()
    record.has = set()
    values = record.__dict__
    for name, kind in table.values():
        if name[0] == "*":
            values[name[1:]] = []
        else:
            values[name.lstrip("?")] = _DEFAULTS[kind] if isinstance(kind, str) else None
    _merge(record, table, data)
    for name, kind in table.values():
        if not isinstance(kind, str) and values.get(name, ()) is None:
            values[name] = _Absent(kind)
    return record


class _Absent(WireMessage):
    """A message that is not there, which reads as an empty one; made when it is read."""

    def __init__(self, table: Table) -> None:
        self.has = set()
        self._table = table

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            return getattr(decode(self._table, b""), name)


def _merge(record: WireMessage, table: Table, data: bytes) -> None:
    values = record.__dict__
    at, size = 0, len(data)
    while at < size:
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if not 0 < number <= FIELD_NUMBER_MAX:
            raise Malformed(f"it has a field of the number {number}")
        if wire == VARINT:
            value: int | bytes
            value, at = _varint(data, at)
        elif wire == LENGTH:
            length, at = _varint(data, at)
            if length > size - at:
                raise Malformed(f"a field of {length} bytes has {size - at}")
            value = data[at : at + length]
            at += length
        elif wire in _SIZES:
            if _SIZES[wire] > size - at:
                raise Malformed("a number is cut")
            value = data[at : at + _SIZES[wire]]
            at += _SIZES[wire]
        else:
            raise Malformed(f"it has a field of the wire type {wire}")
        field = table.get(number)
        if field is not None:
            _set(record, values, field, wire, value)


def _set(
    record: WireMessage, values: dict[str, Any], field: tuple[str, Type], wire: int, value: int | bytes
) -> None:
    name, kind = field
    if wire != (_KINDS.get(kind, LENGTH) if isinstance(kind, str) else LENGTH):
        return  # of another type than ours: unknown, to protobuf too
    if name[0] == "*":
        values[name[1:]].append(_value(kind, value))
        return
    name = name.lstrip("?")
    record.has.add(name)
    if not isinstance(kind, str) and values[name] is not None:
        assert isinstance(value, bytes)
        _merge(values[name], kind, value)  # a message that comes in two parts is one
    else:
        values[name] = _value(kind, value)


def _value(kind: Type, value: Any) -> Any:
    if not isinstance(kind, str):
        return decode(kind, value)
    if kind == "string":
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise Malformed(f"a text is no UTF-8: {error.reason}") from error
    if kind == "double":
        import _struct

        return _struct.unpack("<d", value)[0]
    if kind == "bool":
        return value != 0
    if kind == "int":
        return value - 2**64 if value >= 2**63 else value
    return value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a number; return it and the place behind it."""
    value = shift = 0
    for place in range(at, min(at + VARINT_BYTES_MAX, len(data))):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), place + 1
        shift += 7
    raise Malformed("a number is cut" if at + VARINT_BYTES_MAX > len(data) else "a number has no end")


def encode(table: Table, values: Mapping[str, Any]) -> bytes:
    """Write a message: of each field that `values` has, its value; of a message in it, a mapping."""
    out = bytearray()
    for number, (name, kind) in table.items():
        plain = name.lstrip("*?")
        if plain not in values:
            continue
        for value in values[plain] if name[0] == "*" else (values[plain],):
            if not isinstance(kind, str):
                data = encode(kind, value)
            elif kind in ("string", "bytes"):
                data = value.encode() if kind == "string" else value
            elif kind == "double":
                import _struct

                out += _number(number << 3 | FIXED64) + _struct.pack("<d", value)
                continue
            else:
                out += _number(number << 3 | VARINT) + _number(int(value))
                continue
            out += _number(number << 3 | LENGTH) + _number(len(data)) + data
    return bytes(out)


def _number(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
