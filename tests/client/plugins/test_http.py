"""The strategy `http`, against servers on the loopback: what arrives, what is refused, and what of an answer is read."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from tests.client.plugins.kit import DOTS, TEXT, URL_PARTS, URLS, call, entry, load, problems, tool

from toolcell import ToolError
from toolcell.testing import FakeContext

pytestmark = pytest.mark.anyio


@dataclass
class Seen:
    """A request as the server read it."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Server:
    """Answers every request with the next of its answers; by default with 200 and "fine"."""

    port: int = 0
    seen: list[Seen] = field(default_factory=list[Seen])
    answers: list[bytes] = field(default_factory=list[bytes])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def serving(server: Server) -> Iterator[Server]:
    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            server.seen.append(Seen(self.command, self.path, dict(self.headers), body))
            answer = server.answers.pop(0) if server.answers else response("200 OK", b"fine")
            self.wfile.write(answer)
            self.close_connection = True

        do_POST = do_PUT = do_GET  # noqa: N815  # the base's names

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  # the base's name
            """The test looks at what was seen."""

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    server.port = listening.server_address[1]
    thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
    thread.start()
    yield server
    listening.shutdown()
    listening.server_close()
    thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    yield from serving(Server())


@pytest.fixture
def other() -> Iterator[Server]:
    yield from serving(Server())


def response(status: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def http(url: str, method: str = "GET", **others: object) -> dict[str, object]:
    return {"type": "http", "url": url, "method": method, **others}


async def test_no_hostile_value_leaves_its_place_in_the_url(server: Server, other: Server) -> None:
    assert len(URL_PARTS) >= 100
    fetch = tool(http(f"{server.url}/items/{{{{value}}}}/view?q={{{{value}}}}&last=1"), "value")
    for value in URL_PARTS:
        value = value.replace("{other}", str(other.port))
        if not {".", ".."}.isdisjoint(value.replace("\\", "/").split("/")):
            continue  # refused, as the next test says
        assert await call(fetch, FakeContext(), value=value) == "fine"
        (seen,) = server.seen
        server.seen.clear()
        parts = urlsplit(seen.target)
        segments = parts.path.split("/")
        assert (segments[:2], segments[3:], unquote(segments[2])) == (["", "items"], ["view"], value)
        assert parse_qs(parts.query, strict_parsing=True) == {"q": [value], "last": ["1"]}
        assert seen.headers.keys() == {"Host", "Accept-Encoding"}
    assert other.seen == []


@pytest.mark.parametrize("value", DOTS)
async def test_a_value_cannot_lead_to_another_path(server: Server, value: str) -> None:
    fetch = tool(http(f"{server.url}/items/{{{{value}}}}/view"), "value")
    with pytest.raises(ToolError, match="which leads to another path"):
        await call(fetch, FakeContext(), value=value)
    pieces = tool(http(f"{server.url}/items/{{{{a}}}}{{{{b}}}}/view"), "a", "b")
    with pytest.raises(ToolError, match="which leads to another path"):
        await call(pieces, FakeContext(), a=".", b=".")
    assert server.seen == []


async def test_an_empty_value_is_no_path_segment(server: Server) -> None:
    fetch = tool(http(f"{server.url}/items/{{{{value}}}}?q={{{{q}}}}"), "value", "q")
    with pytest.raises(ToolError, match="Parameter value is empty"):
        await call(fetch, FakeContext(), value="", q="x")
    assert await call(fetch, FakeContext(), value="x", q="") == "fine"
    assert server.seen[0].target == "/items/x?q="


async def test_no_hostile_url_leads_anywhere_else(server: Server, other: Server) -> None:
    assert len(URLS) >= 100
    handler = http("{{url}}/health", rawParams=["url"], allowedHosts=[f"127.0.0.1:{server.port}"])
    fetch = tool(handler, "url")
    for url in URLS:
        url = (
            url.replace("{port}", str(server.port))
            .replace("{other}", str(other.port))
            .replace("{listed}", "a.test")
        )
        with pytest.raises(ToolError):
            print(repr(url), await call(fetch, FakeContext(), url=url))
    assert (server.seen, other.seen) == ([], [])
    assert await call(fetch, FakeContext(), url=f"{server.url}/v1") == "fine"
    assert server.seen[0].target == "/v1/health"


async def test_a_value_in_the_host_is_held_against_the_list(server: Server, other: Server) -> None:
    hosts = [f"127.0.0.1:{server.port}"]
    fetch = tool(http("http://{{host}}/x", rawParams=["host"], allowedHosts=hosts), "host")
    assert await call(fetch, FakeContext(), host=hosts[0]) == "fine"
    for host in (
        f"127.0.0.1:{other.port}",
        f"x@{hosts[0]}",
        f"{hosts[0]}@127.0.0.1:{other.port}",
        "evil.test",
    ):
        with pytest.raises(ToolError):
            await call(fetch, FakeContext(), host=host)
    encoded = tool(http("http://{{host}}/x", allowedHosts=hosts), "host")
    with pytest.raises(ToolError):
        await call(encoded, FakeContext(), host=f"127.0.0.1:{other.port}")
    below = tool(http("http://{{host}}.test/x", allowedHosts=["*.test"]), "host")
    for host in (
        ".",
        "*",
        "127.0.0.1/",
        f"127.0.0.1:{other.port}/",
        "127.0.0.1#",
        "x@",
        "[::1]",
        "a b",
        "%61",
    ):
        with pytest.raises(ToolError, match="which is none"):
            await call(below, FakeContext(), host=host)
    assert other.seen == []


async def test_other_arguments_are_the_body_or_the_query(server: Server) -> None:
    properties = {"id": TEXT, "name": TEXT, "tags": {"type": "array"}, "n": {"type": "integer", "default": 3}}
    arguments = {"id": "a/b", "name": "x&y=é", "tags": ["a", 1]}
    for method in ("POST", "PUT"):
        (send,) = load(entry(http(f"{server.url}/{{{{id}}}}", method), properties)).tools
        assert await call(send, FakeContext(), **arguments) == "fine"
        seen = server.seen.pop()
        assert (seen.method, seen.target, seen.headers["Content-Type"]) == (
            method,
            "/a%2Fb",
            "application/json",
        )
        assert json.loads(seen.body) == {"name": "x&y=é", "tags": ["a", 1], "n": 3}
    (fetch,) = load(entry(http(f"{server.url}/{{{{id}}}}?x=1"), properties)).tools
    await call(fetch, FakeContext(), **arguments)
    seen = server.seen.pop()
    query = {"x": ["1"], "name": ["x&y=é"], "tags": ['["a",1]'], "n": ["3"]}
    assert (seen.method, parse_qs(urlsplit(seen.target).query), seen.body) == ("GET", query, b"")


async def test_post_is_the_default_and_headers_are_sent_as_they_are(server: Server) -> None:
    handler = {
        "type": "http",
        "url": server.url,
        "headers": {"Authorization": "Bearer x", "content-type": "text/x"},
    }
    assert await call(tool(handler), FakeContext()) == "fine"
    (seen,) = server.seen
    assert (seen.method, seen.target, seen.body) == ("POST", "/", b"{}")
    assert seen.headers["Authorization"] == "Bearer x"


async def test_an_absent_parameter_leaves_its_part_of_the_query_out(server: Server) -> None:
    fetch = tool(http(f"{server.url}/x?a={{{{a}}}}&b={{{{b}}}}&c=1"), "a", "b")
    await call(fetch, FakeContext(), b="2")
    assert server.seen[0].target == "/x?b=2&c=1"
    in_path = tool(http(f"{server.url}/{{{{a}}}}"), "a")
    with pytest.raises(ToolError, match="Missing required parameter: a"):
        await call(in_path, FakeContext())


async def test_another_status_than_success_is_an_error_with_the_body(server: Server) -> None:
    server.answers = [
        response("404 Not Found", b"no such item"),
        response("204 No Content"),
        response("304 Not Modified"),
    ]
    fetch = tool(http(server.url))
    with pytest.raises(ToolError) as raised:
        await call(fetch, FakeContext())
    assert str(raised.value) == "HTTP 404 Not Found:\nno such item"
    assert await call(fetch, FakeContext()) == ""
    with pytest.raises(ToolError, match="HTTP 304"):
        await call(fetch, FakeContext())


async def test_a_redirect_is_followed_to_listed_hosts_only(server: Server, other: Server) -> None:
    fetch = tool(http(f"{server.url}/a/b", "POST", headers={"Authorization": "secret"}))
    server.answers = [response("302 Found", b"", "Location: ../c?x=1#y")]
    assert await call(fetch, FakeContext()) == "fine"
    assert [(seen.method, seen.target) for seen in server.seen] == [("POST", "/a/b"), ("GET", "/c?x=1")]
    assert server.seen[1].headers["Authorization"] == "secret"
    for target in (
        f"{other.url}/",
        f"//127.0.0.1:{other.port}/",
        "file:///etc/passwd",
        "http://x@127.0.0.1/",
        "http://[",
    ):
        server.answers = [response("307 Temporary Redirect", b"", f"Location: {target}")]
        with pytest.raises(
            ToolError, match=r"leads to the host|Invalid URL scheme|has a user name|cannot be read"
        ):
            await call(fetch, FakeContext())
    assert other.seen == []


async def test_a_redirect_to_another_listed_host_loses_the_headers_and_keeps_the_body(
    server: Server, other: Server
) -> None:
    listed = [f"127.0.0.1:{other.port}"]
    send = tool(http(server.url, "PUT", headers={"Authorization": "secret"}, allowedHosts=listed), "x")
    server.answers = [response("308 Permanent Redirect", b"", f"Location: {other.url}/there")]
    assert await call(send, FakeContext(), x="y") == "fine"
    (seen,) = other.seen
    assert (seen.method, seen.target, json.loads(seen.body)) == ("PUT", "/there", {"x": "y"})
    assert "Authorization" not in seen.headers


async def test_redirects_have_an_end(server: Server) -> None:
    server.answers = [response("302 Found", b"", "Location: /again")] * 20
    with pytest.raises(ToolError, match="redirects more than 5 times"):
        await call(tool(http(server.url)), FakeContext())
    assert len(server.seen) == 6


async def test_a_response_is_read_up_to_the_limit(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    from toolcell._plugins import http_request

    monkeypatch.setattr(http_request, "RESPONSE_BYTES_MAX", 2**20)
    server.answers = [response("200 OK", b"x" * (2**20 + 1)), response("200 OK", b"x" * 2**20)]
    text = await call(tool(http(server.url)), FakeContext())
    assert text == "x" * 2**20 + "\n… the response has more than 1 MiB; the rest was not read"
    assert await call(tool(http(server.url)), FakeContext()) == "x" * 2**20


async def test_a_server_that_does_not_answer_in_time_is_given_up(server: Server) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        fetch = tool(http(f"http://127.0.0.1:{silent.getsockname()[1]}/", timeout=50))
        with pytest.raises(ToolError, match=r"^Request timed out after 50ms$"):
            await call(fetch, FakeContext())
    assert fetch.options["timeout"] == 5.05


async def test_what_is_no_http_is_an_error(server: Server) -> None:
    server.answers = [b"220 smtp ready\r\n", b"", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n"]
    for _ in range(3):
        with pytest.raises(ToolError, match="sent no HTTP response"):
            await call(tool(http(server.url)), FakeContext())


async def test_the_text_is_decoded_by_its_charset(server: Server) -> None:
    server.answers = [
        response("200 OK", "é".encode("latin-1"), "Content-Type: text/plain; charset=ISO-8859-1"),
        response("200 OK", "é".encode(), "Content-Type: text/plain; charset=unicode_escape"),
        response("200 OK", b"\xff"),
    ]
    fetch = tool(http(server.url))
    assert [await call(fetch, FakeContext()) for _ in range(3)] == ["é", "é", "\ufffd"]


HANDLERS = {
    "ftp://a.test/": "handler.url: should begin with http:// or https://",
    "{{a}}/x": "handler.url: should begin with http:// or https://, or with a parameter of rawParams",
    "http://{{a}}/": "handler.url: has a parameter in its host; list the hosts in allowedHosts",
    "http://x:y@a.test/": "handler.url: has a user name",
    "http:///x": "handler.url: '' is no host",
    "http://*.a.test/": "handler.url: '*.a.test' is no host",
    "http://a.test:99999/": "handler.url: 'http://a.test:99999' cannot be read: Port out of range",
    "http://a.test/#x": "handler.url: has '#'",
    "http://a.test/x y": "handler.url: has ' '",
    "http://a.test/{{b}}": "handler.url: {{b}} is no property of inputSchema",
}


@pytest.mark.parametrize(("url", "message"), HANDLERS.items(), ids=HANDLERS)
def test_what_is_wrong_with_a_url_is_said(url: str, message: str) -> None:
    (problem,) = problems(entry(http(url), {"a": TEXT}))
    assert problem.startswith(f"tools[0] (it): {message}")


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"rawParams": ["a"]}, "handler.rawParams: needs allowedHosts"),
        ({"rawParams": ["b"], "allowedHosts": ["a.test"]}, "handler.rawParams: b does not stand in the URL"),
        ({"allowedHosts": ["http://a.test"]}, "handler.allowedHosts: 'http://a.test' is no host"),
        ({"allowedHosts": ["*"]}, "handler.allowedHosts: '*' is no host"),
        ({"headers": {"Host": "x"}}, "handler.headers.Host: cannot be sent"),
        ({"headers": {"a b": "x"}}, "handler.headers.a b: cannot be sent"),
        ({"headers": {"A": "x\r\nB: y"}}, "handler.headers.A: should be printable ASCII"),
        ({"headers": {"A": "{{a}}"}}, "handler.headers.A: takes no parameters"),
        ({"method": "DELETE"}, 'handler.method: should be "GET", "POST" or "PUT"'),
    ],
)
def test_what_is_wrong_with_a_request_is_said(others: dict[str, object], message: str) -> None:
    (problem,) = problems(entry({**http("http://a.test/{{a}}"), **others}, {"a": TEXT}))
    assert problem.startswith(f"tools[0] (it): {message}")


@pytest.mark.parametrize(
    ("url", "allowed", "hosts"),
    [
        ("https://api.example.org/x", [], ["api.example.org"]),
        ("HTTPS://API.example.org./", [], ["api.example.org"]),
        ("http://api.example.org:8080", [], ["api.example.org:8080"]),
        ("http://[::1]:8080/?q={{a}}", [], ["[::1]:8080"]),
        ("http://a.test/", ["*.a.test"], ["a.test", "*.a.test"]),
        ("http://{{a}}.a.test/", ["*.a.test"], ["*.a.test"]),
    ],
)
def test_a_tool_asks_for_the_hosts_of_its_template_and_no_others(
    url: str, allowed: list[str], hosts: list[str]
) -> None:
    assert tool(http(url, allowedHosts=allowed), "a").options["network"] == hosts


def test_only_a_get_is_said_to_change_nothing() -> None:
    assert [tool(http("http://a.test/", method)).options.get("read_only") for method in ("GET", "POST", "PUT")] == [
        True, None, None,
    ]  # fmt: skip
