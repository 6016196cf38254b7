"""What is written on the wire has room there."""

from __future__ import annotations

import urllib.parse

import pytest

from toolcelld.errors import Refusal, RefusalReason
from toolcelld.rpc.messages.refusals import trailers

SOFT_LIMIT_BYTES = 8 * 1024  # of gRPC; beyond it some metadata are refused by chance
ENTRY_BYTES = 32  # that HTTP/2 counts for each, beside its name and its value


@pytest.mark.parametrize("text", ["x", "%", "é", "\U0001f980", "\n", "\ud800", "x\U0001f980"])
def test_a_refusal_that_ends_an_rpc_always_arrives(text: str) -> None:
    refusal = Refusal(
        RefusalReason.BAD_REQUEST,
        text * 100_000,
        field="open.directory",
        retry_seconds=1,
        quota=text * 100_000,
    )
    message, metadata = trailers(refusal)
    encoded = {
        "grpc-message": urllib.parse.quote(message, safe=" ", errors="replace").encode(),
        **dict(metadata),
    }
    size = sum(len(name) + len(value) + ENTRY_BYTES for name, value in encoded.items())
    assert size < SOFT_LIMIT_BYTES - 500  # for the status itself
    assert message[0] == ("\ufffd" if text == "\ud800" else text[0])
    assert message.endswith("…")


def test_a_refusal_that_fits_arrives_whole() -> None:
    message, metadata = trailers(Refusal(RefusalReason.BAD_REQUEST, "no such thing", field="call.tool"))
    assert message == "no such thing"
    assert b"no such thing" in dict(metadata)["grpc-status-details-bin"]
