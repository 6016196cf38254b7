"""Requests to a proxy: each names one host, and nothing else of it decides where it goes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcelld.network.requests import read_target


@given(st.binary(max_size=300))
def test_any_bytes_are_a_target_or_none(head: bytes) -> None:
    read_target(head)


@given(st.text(max_size=60), st.lists(st.text(max_size=30), max_size=3))
def test_a_target_names_one_host_and_nothing_slips_into_its_header(address: str, fields: list[str]) -> None:
    head = "\r\n".join([f"GET http://{address}/x HTTP/1.1", *(f"X-Y: {field}" for field in fields), "", ""])
    target = read_target(head.encode(errors="replace"))
    if target is not None:
        lines = target.head.decode().split("\r\n")
        assert [line for line in lines if line.lower().startswith("host:")] == [lines[1]]
        assert not set("\r\n\0").intersection("".join(lines))


@pytest.mark.parametrize(
    ("line", "host", "port"),
    [
        ("CONNECT pypi.org:443 HTTP/1.1", "pypi.org", 443),
        ("CONNECT PyPI.org.:443 HTTP/1.1", "pypi.org", 443),
        ("CONNECT [::1]:80 HTTP/1.1", "::1", 80),
        ("GET http://example.com HTTP/1.1", "example.com", 80),
        ("POST http://example.com:8080/a?b HTTP/1.0", "example.com", 8080),
    ],
)
def test_a_request_to_a_proxy_is_read(line: str, host: str, port: int) -> None:
    target = read_target(f"{line}\r\n\r\n".encode())
    assert target is not None
    assert (target.host, target.port) == (host, port)


@pytest.mark.parametrize(
    "line",
    [
        "GET / HTTP/1.1",
        "GET https://example.com/ HTTP/1.1",
        "GET http://user@example.com/ HTTP/1.1",
        "CONNECT example.com HTTP/1.1",
        "CONNECT example.com:0 HTTP/1.1",
        "CONNECT example.com:99999 HTTP/1.1",
        "CONNECT evil.com\0.example.com:443 HTTP/1.1",
        "CONNECT exam%70le.com:443 HTTP/1.1",
        "CONNECT example.com:443/ HTTP/1.1",
        "CONNECT example.com:443 HTTP/2",
        "GET http://example.com/ HTTP/1.1\r\nX: y\nHost: evil.com",
        "GET http://ex\u00e4mple.com/ HTTP/1.1",
        "",
    ],
)
def test_what_is_no_request_to_a_proxy_is_none(line: str) -> None:
    assert read_target(f"{line}\r\n\r\n".encode()) is None
