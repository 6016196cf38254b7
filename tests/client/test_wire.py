"""The messages that the command reads and writes without protobuf's library, held against that library."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import any_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2  # pyright: ignore[reportMissingTypeStubs]
from hypothesis import given
from hypothesis import strategies as st

from toolcell.client._grpc import wire
from toolcell.client._transport import outcomes
from toolcell_proto.v1 import operator_pb2 as op
from toolcell_proto.v1 import toolcell_pb2 as pb

TABLES: dict[str, tuple[wire.Table, type[Message]]] = {
    "AttachResponse": (wire.ATTACH_RESPONSE, pb.AttachResponse),
    "AttachRequest": (wire.ATTACH_REQUEST, pb.AttachRequest),
    "Outcome": (wire.OUTCOME, pb.Outcome),
    "Status": (wire.STATUS, status_pb2.Status),
    "Any": (wire.ANY, any_pb2.Any),
    "ErrorInfo": (wire.ERROR_INFO, error_details_pb2.ErrorInfo),
    "BadRequest": (wire.BAD_REQUEST, error_details_pb2.BadRequest),
    "QuotaFailure": (wire.QUOTA_FAILURE, error_details_pb2.QuotaFailure),
    "RetryInfo": (wire.RETRY_INFO, error_details_pb2.RetryInfo),
    "ListCallsResponse": (wire.LIST_CALLS_RESPONSE, op.ListCallsResponse),
    "GetCallRequest": (wire.GET_CALL_REQUEST, op.GetCallRequest),
    "GetCallResponse": (wire.GET_CALL_RESPONSE, op.GetCallResponse),
    "ListWorkersResponse": (wire.LIST_WORKERS_RESPONSE, op.ListWorkersResponse),
    "GetStatusResponse": (wire.GET_STATUS_RESPONSE, op.GetStatusResponse),
    "ListToolsRequest": (wire.LIST_TOOLS_REQUEST, pb.ListToolsRequest),
    "ListToolsResponse": (wire.LIST_TOOLS_RESPONSE, pb.ListToolsResponse),
    "ListSessionsResponse": (wire.LIST_SESSIONS_RESPONSE, op.ListSessionsResponse),
}
TYPES = {
    "bool": {FieldDescriptor.TYPE_BOOL},
    "uint": {FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_UINT64},
    "int": {FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_ENUM},
    "double": {FieldDescriptor.TYPE_DOUBLE},
    "bytes": {FieldDescriptor.TYPE_BYTES},
    "string": {FieldDescriptor.TYPE_STRING},
}


def differences(table: wire.Table, descriptor: Any) -> list[str]:
    """What a table says of a message that its descriptor does not."""
    found: list[str] = []
    for number, (name, kind) in table.items():
        field = descriptor.fields_by_number.get(number)
        plain = name.lstrip("*?")
        where = f"{descriptor.name}.{plain}"
        if field is None or field.name != plain:
            found.append(f"{where} has not the number {number}")
            continue
        repeated = bool(field.is_repeated)
        if repeated != name.startswith("*"):
            found.append(f"{where} is {'' if repeated else 'not '}repeated")
        if isinstance(kind, str):
            if field.type not in TYPES[kind]:
                found.append(f"{where} is no {kind}")
            if not repeated and field.has_presence and field.containing_oneof is not None and name[0] != "?":
                found.append(f"{where} is optional")
        elif field.message_type is None:
            found.append(f"{where} is no message")
        else:
            found += differences(kind, field.message_type)
    return found


@pytest.mark.parametrize("name", TABLES)
def test_the_tables_are_those_of_the_contract(name: str) -> None:
    table, kind = TABLES[name]
    assert differences(table, kind.DESCRIPTOR) == []


def test_a_table_that_differs_is_noticed() -> None:
    table: wire.Table = {1: ("*kind", "string"), 2: ("reason", "string"), 99: ("new", "bool")}
    assert differences(table, pb.Outcome.DESCRIPTOR) == [
        "Outcome.kind is not repeated",
        "Outcome.kind is no string",
        "Outcome.reason has not the number 2",
        "Outcome.new has not the number 99",
    ]


def test_the_kinds_of_outcomes_are_those_of_the_contract() -> None:
    kinds = {n: name.removeprefix("OUTCOME_KIND_").lower() for name, n in pb.OutcomeKind.items() if n}
    assert {number: kind.value for number, kind in outcomes.KINDS.items()} == kinds
    stopped = {n: name.removeprefix("STOPPED_").lower() for name, n in pb.Stopped.items() if n}
    assert stopped == outcomes.STOPPED


def messages(kind: type[Message]) -> st.SearchStrategy[Any]:
    """Messages of a type with any of its fields, those without a table as well."""

    def made(fields: dict[str, Any]) -> Any:
        return _filled(kind(), fields)

    return _fields(kind.DESCRIPTOR, 0).map(made)


def _fields(descriptor: Any, depth: int) -> st.SearchStrategy[dict[str, Any]]:
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for field in descriptor.fields:
        value = _values(field, depth)
        optional[field.name] = st.lists(value, max_size=3) if field.is_repeated else value
    return st.fixed_dictionaries({}, optional=optional)


def _values(field: Any, depth: int) -> st.SearchStrategy[Any]:
    kind: int = field.type
    if kind == FieldDescriptor.TYPE_MESSAGE:
        return _fields(field.message_type, depth + 1) if depth < 4 else st.just({})
    if kind == FieldDescriptor.TYPE_ENUM:
        return st.sampled_from([value.number for value in field.enum_type.values])
    return {
        FieldDescriptor.TYPE_BOOL: st.booleans(),
        FieldDescriptor.TYPE_STRING: st.text(max_size=20),
        FieldDescriptor.TYPE_BYTES: st.binary(max_size=20),
        FieldDescriptor.TYPE_DOUBLE: st.floats(allow_nan=False),
        FieldDescriptor.TYPE_UINT32: st.integers(0, 2**32 - 1),
        FieldDescriptor.TYPE_UINT64: st.integers(0, 2**64 - 1),
        FieldDescriptor.TYPE_INT32: st.integers(-(2**31), 2**31 - 1),
        FieldDescriptor.TYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    }[kind]


def _filled(message: Any, fields: dict[str, Any]) -> Any:
    for name, value in fields.items():
        field = message.DESCRIPTOR.fields_by_name[name]
        if field.type != FieldDescriptor.TYPE_MESSAGE:
            if field.is_repeated:
                getattr(message, name).extend(value)
            else:
                setattr(message, name, value)
        elif field.is_repeated:
            for item in value:
                _filled(getattr(message, name).add(), item)
        else:
            getattr(message, name).SetInParent()
            _filled(getattr(message, name), value)
    return message


def same(table: wire.Table, record: wire.WireMessage, message: Any) -> None:
    """Hold a record against the message that it should be."""
    for name, kind in table.values():
        plain = name.lstrip("*?")
        ours, theirs = getattr(record, plain), getattr(message, plain)
        if name.startswith("*"):
            assert len(ours) == len(theirs), plain
            for mine, other in zip(ours, theirs, strict=True):
                if isinstance(kind, str):
                    assert mine == other, plain
                else:
                    same(kind, mine, other)
        elif not isinstance(kind, str):
            assert record.HasField(plain) == message.HasField(plain), plain
            same(kind, ours, theirs)
        else:
            assert ours == theirs, plain
            if name.startswith("?"):
                assert record.HasField(plain) == message.HasField(plain), plain


@pytest.mark.slow
@given(messages(pb.AttachResponse))
def test_a_response_reads_as_protobuf_reads_it(message: pb.AttachResponse) -> None:
    record = wire.decode(wire.ATTACH_RESPONSE, message.SerializeToString())
    same(wire.ATTACH_RESPONSE, record, message)


@given(messages(status_pb2.Status))
def test_a_status_reads_as_protobuf_reads_it(message: status_pb2.Status) -> None:
    same(wire.STATUS, wire.decode(wire.STATUS, message.SerializeToString()), message)


def plain(table: wire.Table, message: Any) -> dict[str, Any]:
    """The fields of a message that a table has, as `encode` takes them."""
    values: dict[str, Any] = {}
    for name, kind in table.values():
        key = name.lstrip("*?")
        field = message.DESCRIPTOR.fields_by_name[key]
        if field.is_repeated:
            values[key] = list(getattr(message, key))
        elif not field.has_presence or message.HasField(key):
            value = getattr(message, key)
            values[key] = value if isinstance(kind, str) else plain(kind, value)
    return values


@given(messages(pb.AttachRequest))
def test_what_is_written_is_read_by_protobuf(message: pb.AttachRequest) -> None:
    values = plain(wire.ATTACH_REQUEST, message)
    read = pb.AttachRequest.FromString(wire.encode(wire.ATTACH_REQUEST, values))
    assert plain(wire.ATTACH_REQUEST, read) == values


def why_malformed(table: wire.Table, data: bytes) -> str:
    """Why bytes are no message; empty if they are one."""
    try:
        wire.decode(table, data)
    except wire.Malformed as error:
        return str(error)
    return ""


@given(st.binary(max_size=200))
def test_garbage_is_a_message_or_malformed(data: bytes) -> None:
    for table, _ in TABLES.values():
        why_malformed(table, data)


@given(messages(pb.AttachResponse), st.data())
def test_what_reads_of_a_message_that_is_cut_protobuf_reads_too(
    message: pb.AttachResponse, data: st.DataObject
) -> None:
    whole = message.SerializeToString()
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    if not why_malformed(wire.ATTACH_RESPONSE, cut):
        pb.AttachResponse.FromString(cut)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "bytes has 0"),
        (b"\x0a\x05abc", "a field of 5 bytes has 3"),
        (b"\x08", "a number is cut"),
        (b"\x08" + b"\xff" * 11, "a number has no end"),
        (b"\x11abc", "a number is cut"),
        (b"\x00\x01", "a field of the number 0"),
        (b"\x0b", "the wire type 3"),
        (b"\x12\x01\xff", "a text is no UTF-8"),
    ],
)
def test_what_is_no_message_says_why(data: bytes, why: str) -> None:
    assert why in why_malformed(wire.STATUS, data)


def test_what_a_newer_daemon_sends_is_skipped() -> None:
    added = b"\xf8\x3f\x01" + b"\xfa\x3f\x03new" + b"\xf9\x3f" + bytes(8) + b"\xfd\x3f" + bytes(4)
    status = status_pb2.Status(code=5, message="no").SerializeToString()
    record = wire.decode(wire.STATUS, added + status + added)
    assert (record.code, record.message, record.details) == (5, "no", [])


def test_an_absent_message_reads_as_an_empty_one() -> None:
    outcome = wire.decode(wire.OUTCOME, b"")
    assert (outcome.HasField("facts"), outcome.facts.logs, outcome.facts.worker_id) == (False, [], "")
