"""The routes of operators in front of a real daemon: what they show, what they do, and whom they refuse."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from typing import Any

import httpx2
import pytest
from tests.cli.page.conftest import SECONDS_MAX, Visitor, serving, visiting
from tests.daemons import RunningDaemon

from toolcell.cli.page.acting import ACTIONS

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ROUTES = (
    "session",
    "live",
    "calls",
    "rates",
    "calls/c",
    "outputs/o",
    "tools",
    "tools/t",
    "events",
    "sessions",
    "problems",
)
"""Everything that shows something."""


def reason(response: httpx2.Response) -> tuple[int, str]:
    """The status of a refusal, and its reason."""
    return response.status_code, response.json()["error"]["reason"]


async def events_of(response: httpx2.Response) -> AsyncGenerator[tuple[str, dict[str, Any]]]:
    name = ""
    async for line in response.aiter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


async def call(visitor: Visitor, tool: str, **arguments: Any) -> dict[str, Any]:
    """The last event of a call; the others have come before it."""
    async with visitor.http.stream(
        "POST",
        "/api/operator/call",
        json={"tool": tool, "arguments": arguments},
        headers={"Origin": visitor.page.url, "X-Toolcell-Page": visitor.token},
    ) as response:
        assert response.status_code == 200, await response.aread()
        told = [event async for event in events_of(response)]
    assert told[0][0] == "accepted"
    assert told[-1][0] == "ended"
    return told[-1][1] | {"call_id": told[0][1]["call_id"]}


async def decisions(visitor: Visitor) -> list[Any]:
    """The audit."""
    events: list[Any] = (await visitor.answer("events", params={"type": "decision.", "limit": 1000}))[
        "events"
    ]
    return events


# Whom it refuses


async def test_a_link_is_good_once(watched: Visitor) -> None:
    again = await watched.http.post("/api/operator/open", json={"link": watched.page.secret})
    assert reason(again) == (401, "used_link")
    for wrong in ("", "x", "a" * 200):
        assert reason(await watched.http.post("/api/operator/open", json={"link": wrong})) == (
            401,
            "used_link",
        )
    bodies: list[Any] = [{}, {"link": 1}, {"link": "a" * 300}, {"link": "a", "may_act": True}, []]
    for wrong_body in bodies:
        assert (await watched.http.post("/api/operator/open", json=wrong_body)).status_code == 422


async def test_the_cookie_is_for_this_server_and_no_script(page_daemon: RunningDaemon) -> None:
    with serving(page_daemon) as page:
        async with httpx2.AsyncClient(base_url=page.url) as http:
            opened = await http.post("/api/operator/open", json={"link": page.secret})
            said = opened.headers["set-cookie"]
            assert re.match(r"toolcell_[0-9a-f]{16}=[\w-]{43}; ", said)
            assert {"HttpOnly", "SameSite=strict", "Path=/api/operator/", "Max-Age=28800"} <= set(
                said.split("; ")
            )
            assert page.secret not in opened.text + said


@pytest.mark.parametrize("path", ROUTES)
async def test_a_cookie_alone_shows_nothing(watched: Visitor, path: str) -> None:
    # Another server of this host is sent the cookie; what else the page shows stays with its origin.
    url = f"/api/operator/{path}"
    assert reason(await watched.http.get(url)) == (403, "forged")
    assert reason(await watched.http.get(url, headers={"X-Toolcell-Page": "a" * 43})) == (403, "forged")
    async with httpx2.AsyncClient(base_url=watched.page.url) as stranger:
        assert reason(await stranger.get(url)) == (401, "no_session")
        with_token = {"X-Toolcell-Page": watched.token}
        assert reason(await stranger.get(url, headers=with_token)) == (401, "no_session")


async def test_pages_of_others_are_refused(operated: Visitor) -> None:
    for site in ("same-site", "cross-site"):
        headers = {"Sec-Fetch-Site": site}
        assert reason(await operated.get("session", headers=headers)) == (403, "wrong_origin")
        assert reason(await operated.post("actions/reload", headers=headers)) == (403, "wrong_origin")
    for origin in (
        "null",
        "",
        "http://127.0.0.1:1",
        "http://evil.example",
        f"{operated.page.url}.evil.example",
    ):
        headers = {"Origin": origin}
        assert reason(await operated.get("session", headers=headers)) == (403, "wrong_origin")
        assert reason(await operated.post("actions/reload", headers=headers)) == (403, "wrong_origin")
        with_link = await operated.http.post("/api/operator/open", json={"link": "x"}, headers=headers)
        assert reason(with_link) == (403, "wrong_origin")
    assert reason(await operated.post("actions/reload", headers={"Origin": None})) == (403, "wrong_origin")


async def test_a_name_that_leads_here_is_not_ours(operated: Visitor) -> None:
    port = operated.page.url.rpartition(":")[2]
    for host in (f"evil.example:{port}", "127.0.0.1", "127.0.0.1:1", f"localhost.evil.example:{port}"):
        for path in ("/", "/page.js", "/api/operator/session", "/api/operator/open"):
            headers = {"Host": host, "X-Toolcell-Page": operated.token}
            assert reason(await operated.http.get(path, headers=headers)) == (421, "wrong_host")
        forged = await operated.post("actions/reload", headers={"Host": host, "Origin": f"http://{host}"})
        assert reason(forged) == (421, "wrong_host")


@pytest.mark.parametrize("action", [*(f"actions/{name}" for name in ACTIONS), "call", "answer"])
async def test_each_action_is_refused_without_its_token_and_to_who_may_only_look(
    watched: Visitor, operated: Visitor, action: str
) -> None:
    before = await decisions(watched)
    assert reason(await watched.post(action)) == (403, "read_only")
    assert reason(await operated.post(action, headers={"X-Toolcell-Page": None})) == (403, "forged")
    for token in ("", "a" * 43, watched.token):
        forged = await operated.post(action, headers={"X-Toolcell-Page": token})
        assert reason(forged) == (403, "forged")
    for method in ("GET", "DELETE", "PUT"):
        url = f"/api/operator/{action}"
        response = await operated.http.request(method, url, headers={"X-Toolcell-Page": operated.token})
        assert reason(response)[0] == 405
    assert await decisions(watched) == before


async def test_the_token_of_hosts_is_not_that_of_operators(watched: Visitor) -> None:
    host = (watched.page.daemon.directory / ".local/state/toolcell/http.token").read_text().strip()
    operator = (watched.page.daemon.directory / "run/operator.token").read_text().strip()
    agent = (watched.page.daemon.directory / "run/agent.token").read_text().strip()
    async with httpx2.AsyncClient(base_url=watched.page.url) as program:

        async def ask(path: str, token: str) -> httpx2.Response:
            return await program.get(path, headers={"Authorization": f"Bearer {token}"})

        assert (await ask("/api/tools", host)).status_code == 200
        assert (await ask("/api/operator/calls", operator)).status_code == 200
        for path, token in (
            ("/api/operator/calls", host),
            ("/api/operator/calls", agent),
            ("/api/operator/calls", watched.token),
            ("/api/tools", operator),
            ("/api/tools", watched.token),
        ):
            assert reason(await ask(path, token)) == (401, "wrong_token")
        acted = await program.post(
            "/api/operator/actions/reload", json={}, headers={"Authorization": f"Bearer {operator}"}
        )
        assert acted.status_code == 200
    # A cookie of the page opens nothing of the gateway.
    assert reason(await watched.http.get("/api/tools", headers={"X-Toolcell-Page": watched.token}))[0] == 401


async def test_every_answer_forbids_what_the_page_does_not_need(watched: Visitor) -> None:
    for path in (
        "/",
        "/page.js",
        "/vendor/preact.js",
        "/api/operator/session",
        "/api/tools",
        "/nothing",
        "/../x",
    ):
        headers = (await watched.http.get(path)).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; ")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers


async def test_files_are_those_of_a_list(watched: Visitor) -> None:
    for path in (
        "/ui.py",
        "/files/page.js",
        "/%2e%2e/access.py",
        "/..%2faccess.py",
        "/vendor/",
        "/vendor/../page.js",
    ):
        response = await watched.http.get(path)
        assert response.status_code == 404 or response.content == (await watched.http.get("/page.js")).content
    page = (await watched.http.get("/")).text
    assert not re.findall(r"https?://|<script>|\bon\w+=|style=", page)


async def test_a_closed_session_is_over(page_daemon: RunningDaemon) -> None:
    with serving(page_daemon) as page:
        async with visiting(page) as visitor:
            cookies = dict(visitor.http.cookies)
            assert (await visitor.post("close")).status_code == 200
            assert not visitor.http.cookies
            visitor.http.cookies.update(cookies)
            assert reason(await visitor.get("session")) == (401, "no_session")


async def test_requests_that_are_none_are_refused(operated: Visitor) -> None:
    assert reason(await operated.post("actions/nothing")) == (404, "no_route")
    requests: list[tuple[str, Any]] = [
        ("disable", {"tool": "count", "why": "x"}),
        ("disable", {"tool": 1}),
        ("disable", {"tool": ["count"]}),
        ("reload", {"tool": "count"}),
        ("log-level", {"level": "debug", "seconds": "soon"}),
        ("abort", {"call_id": "c", "resume_token": "t"}),
        ("abort", []),
        ("abort", "text"),
    ]
    for action, body in requests:
        assert reason(await operated.post(f"actions/{action}", body)) == (422, "invalid_request")
    calls: list[Any] = [{}, {"tool": ""}, {"tool": "count", "arguments": []}, {"tool": "t", "more": 1}]
    for wanted in calls:
        assert reason(await operated.post("call", wanted)) == (422, "invalid_request")
    assert reason(await operated.post("actions/disable", {"tool": "nothing"})) == (404, "unknown_tool")
    assert reason(await operated.post("actions/abort-calls", {})) == (422, "bad_request")
    assert (await operated.get("calls", params={"limit": "100000"})).status_code == 422
    assert (await operated.get("outputs/nothing")).status_code in (404, 422)


# What it shows and does


async def test_a_call_of_the_page_is_followed_and_told_whole(operated: Visitor) -> None:
    outcome = await call(operated, "count", text="one two three")
    assert (outcome["kind"], outcome["content"]) == ("ok", [{"type": "text", "text": "3"}])
    shown = await operated.answer(f"calls/{outcome['call_id']}")
    assert (shown["call"]["agent"], shown["call"]["kind"], shown["result"]) == ("page", "ok", "3")
    assert [line["text"] for line in shown["story"]][-1] == "ended: ok"
    listed = (await operated.answer("calls", params={"agent": "page"}))["calls"]
    assert outcome["call_id"] in [each["call_id"] for each in listed]
    counted = (await operated.answer("rates", params={"tool": "count"}))["parts"]
    assert sum(part["ok"] for part in counted) >= 1
    failed = await call(operated, "fail", message="\u202e<script>\x07" + "x" * 5000)
    assert failed["kind"] == "tool_error"
    assert (await call(operated, "nothing"))["kind"] == "refused"


async def asking(
    visitor: Visitor, answers: list[dict[str, Any]], tool: str = "inquire"
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Call a tool and answer its questions, one after the other; return them, and how it ended."""
    questions: list[dict[str, Any]] = []
    async with visitor.http.stream(
        "POST",
        "/api/operator/call",
        json={"tool": tool},
        headers={"Origin": visitor.page.url, "X-Toolcell-Page": visitor.token},
    ) as response:
        async for name, data in events_of(response):
            if name == "question":
                questions.append(data)
                said = {"question": data["question"], **answers[len(questions) - 1]}
                assert (await visitor.post("answer", said)).status_code == 200
                again = await visitor.post("answer", said)
                assert reason(again) == (404, "unknown_question")
            elif name == "ended":
                return questions, data
    raise AssertionError


async def answered(visitor: Visitor, tool: str) -> list[tuple[str, str]]:
    """The answers in the audit to what a tool has asked, the newest first."""
    return [
        (each["message"], each["call_id"])
        for each in await decisions(visitor)
        if each["type"] == "decision.answer" and each["tool"] == tool
    ]


async def test_the_questions_of_a_call_are_told_answered_and_in_the_audit(operated: Visitor) -> None:
    yes: list[dict[str, Any]] = [{"allowed": True}, {"value": "blue"}, {"value": "me"}, {"value": True}]
    questions, outcome = await asking(operated, yes)
    assert (outcome["kind"], outcome["content"][0]["text"]) == ("ok", "blue me True"), outcome
    assert [(each["kind"], each["message"]) for each in questions] == [
        ("permission", "Delete <b>\u202eall?"),
        ("select", "Which one?"),
        ("input", "Your name?"),
        ("confirm", "Sure?"),
    ]
    assert (questions[0]["patterns"], questions[0]["always"]) == (["/x"], ["/*"])
    assert (questions[1]["options"], questions[2]["default"]) == (["red", "blue"], "nobody")
    said: list[tuple[str, str]] = []
    while len(said) < 4:  # the records are written in batches
        said = await answered(operated, "inquire")
        await asyncio.sleep(0.02)
    # What was typed may be a secret.
    assert [message for message, _ in said] == ["a value"] * 3 + ["yes: Delete <b>\\u202eall?"]
    assert len({call_id for _, call_id in said}) == 1
    assert said[0][1].startswith("page-")


async def test_a_no_has_its_reason_and_a_value_may_be_left_out(operated: Visitor) -> None:
    _, outcome = await asking(operated, [{"allowed": False, "message": "not \u202e today"}])
    assert (outcome["kind"], "not \u202e today" in outcome["message"]) == ("denied", True), outcome
    none: dict[str, Any] = {"value": None}
    _, outcome = await asking(operated, [{"allowed": True, "always": True}, none, none, none])
    assert outcome["content"][0]["text"] == "None None False"


async def test_what_is_no_answer_leaves_the_question_open(watched: Visitor, operated: Visitor) -> None:
    wrong: list[Any] = [
        {"value": "green"},
        {"value": True},
        {"value": "x" * 40_000},
        {"value": 1},
        {"value": ["red"]},
        {"value": "red", "more": 1},
        {"allowed": "yes"},
        {"message": "x" * 2000},
    ]
    data: dict[str, Any] = {}
    async with operated.http.stream(
        "POST",
        "/api/operator/call",
        json={"tool": "inquire"},
        headers={"Origin": operated.page.url, "X-Toolcell-Page": operated.token},
    ) as response:
        async for name, data in events_of(response):
            if name != "question":
                continue
            if data["kind"] == "permission":
                about = {"question": data["question"], "allowed": True}
                assert reason(await operated.post("answer", about | {"value": "x"})) == (
                    422,
                    "invalid_request",
                )
                # Who may only look, and who guesses, answer nothing.
                assert reason(await watched.post("answer", about)) == (403, "read_only")
                forged = await operated.post("answer", about, headers={"X-Toolcell-Page": "a" * 43})
                assert reason(forged) == (403, "forged")
                for guess in ("", "1", data["question"][:-1], "x" * 64):
                    refused = await operated.post("answer", about | {"question": guess})
                    assert reason(refused) == (404, "unknown_question")
                assert (await operated.post("answer", about)).status_code == 200
                continue
            for body in wrong:
                refused = await operated.post("answer", {"question": data["question"]} | body)
                assert reason(refused) == (422, "invalid_request"), body
            assert (await operated.answer("calls", params={"tool": "inquire"}))["calls"][0][
                "state"
            ] != "ended"
            break
    state = ""
    while state != "ended":  # who leaves takes the call along, and its question
        state = (await operated.answer("calls", params={"tool": "inquire"}))["calls"][0]["state"]
        await asyncio.sleep(0.02)
    gone = await operated.post("answer", {"question": data["question"], "value": "red"})
    assert reason(gone) == (404, "unknown_question")


async def test_an_output_is_read_in_ranges(operated: Visitor) -> None:
    outcome = await call(operated, "print_much")
    path = f"outputs/{outcome['output']['id']}"
    first = await operated.answer(path, params={"length": 100})
    assert (first["start"], first["end"]) == (0, 100)
    assert first["text"].startswith("line 0 <b>\nline 1 ")
    last = await operated.answer(path, params={"start": outcome["output"]["bytes"] - 14})
    assert last["text"] == "line 19999 <b>"
    assert (await operated.answer(path, params={"start": 10**9}))["text"] == ""


async def test_a_tool_is_shown_with_its_settings_and_its_permit(watched: Visitor) -> None:
    shown = await watched.answer("tools/count")
    assert shown["tool"]["input_schema"]["required"] == ["text"]
    assert {"key": "read_only", "value": "true", "origin": "file"} in shown["settings"]
    assert "sandbox" in {each["kind"] for each in shown["permit"]}
    assert not shown["quarantined"]
    unknown = await watched.answer("tools/" + "x" * 1000)
    assert unknown["tool"] is None
    assert unknown["refused"]["reason"] == "unknown_tool"


async def test_every_action_reaches_the_daemon_and_stands_in_the_audit(operated: Visitor) -> None:
    async def act(name: str, **values: Any) -> Any:
        response = await operated.post(f"actions/{name}", values)
        assert response.status_code == 200, response.text
        return response.json()

    directory = str(operated.page.daemon.project)
    running = asyncio.create_task(call(operated, "wait"))
    other = asyncio.create_task(call(operated, "wait"))
    calls: list[Any] = []
    while len(calls) < 2:
        listed = (await operated.answer("calls"))["calls"]
        calls = [each for each in listed if each["state"] == "running"]
        await asyncio.sleep(0.02)
    await act("abort", call_id=calls[0]["call_id"], reason="one")
    assert (await act("abort-calls", tool="wait", reason="the other"))["call_ids"] == [calls[1]["call_id"]]
    assert [(await each)["kind"] for each in (running, other)] == ["aborted", "aborted"]

    await act("disable", tool="count", reason="for a test", directory=directory)
    assert (await operated.answer("problems"))["disabled"][0]["reason"] == "for a test"
    refused = await call(operated, "count", text="x")
    assert (refused["kind"], refused["cause"]) == ("refused", "disabled")
    await act("enable", tool="count")

    await act("quarantine", tool="count", reason="for a test", directory=directory)
    assert (await operated.answer("tools/count"))["quarantined"]
    assert (await operated.answer("problems"))["quarantined"][0]["path"].endswith("tools.py")
    await act("release", tool=f"{directory}/.toolcell/tools/tools.py")

    assert (await act("drain", reason="for a test"))["draining"]
    await act("drain", off=True)
    await act("restart", tool="count")
    await act("log-level", level="warning", seconds=60)
    await act("log-level", level="info", seconds=60)
    assert (await act("reload"))["problems"] == []

    wanted = {name.removesuffix("-calls") for name in ACTIONS}
    audit: set[str] = set()
    while not wanted <= audit:  # the records are written in batches
        audit = {each["type"].removeprefix("decision.") for each in await decisions(operated)}
        await asyncio.sleep(0.02)


async def test_leaving_a_call_aborts_it(operated: Visitor) -> None:
    async with operated.http.stream(
        "POST",
        "/api/operator/call",
        json={"tool": "wait"},
        headers={"Origin": operated.page.url, "X-Toolcell-Page": operated.token},
    ) as response:
        async for name, data in events_of(response):
            if name == "message" and data["event"] == "progress":
                break
    state = ""
    while state != "ended":
        state = (await operated.answer("calls", params={"tool": "wait"}))["calls"][0]["state"]
        await asyncio.sleep(0.02)


async def test_problems_are_told_with_what_mends_them(watched: Visitor) -> None:
    broken = watched.page.daemon.project / ".toolcell" / "tools" / "<b>broken.py"
    broken.write_text("def broken(:\n")
    asks = broken.with_name("asks.py")
    asks.write_text("from toolcell import tool\n@tool(secrets=['KEY'])\ndef asks() -> str:\n    return ''\n")
    try:
        (place,) = (await watched.answer("problems"))["places"]
        assert [(each["path"], each["reason"], each["line"]) for each in place["problems"]] == [
            (str(broken), "broken", 1)
        ]
        (waiting,) = place["waiting"]
        assert (waiting["tool"], waiting["held"]) == ("asks", ["the secret KEY"])
        assert waiting["command"] == f"toolcell trust {watched.page.daemon.project}"
    finally:
        broken.unlink()
        asks.unlink()


async def test_an_open_page_is_told_what_changes(page_daemon: RunningDaemon) -> None:
    with serving(page_daemon, "--operate") as page:
        async with visiting(page) as visitor:
            headers = {"X-Toolcell-Page": visitor.token}
            running: asyncio.Task[dict[str, Any]] | None = None
            async with visitor.http.stream("GET", "/api/operator/live", headers=headers) as response:
                assert response.headers["content-type"].startswith("text/event-stream")
                async for name, state in events_of(response):
                    assert name == "state"
                    assert state["status"]["state"] == "serving"
                    assert state["host"]["processors"] >= 1
                    if running is None:
                        running = asyncio.create_task(call(visitor, "wait"))
                    found = [each for each in state["calls"] if each["state"] == "running"]
                    if found:
                        await visitor.post("actions/abort", {"call_id": found[0]["call_id"]})
                        break
            assert running is not None
            assert (await running)["kind"] == "aborted"


async def test_the_page_says_that_the_daemon_is_gone_and_finds_the_next_one(
    make_daemon: Callable[[], RunningDaemon],
) -> None:
    daemon = make_daemon()
    daemon.launch()
    with serving(daemon) as page:
        async with visiting(page) as visitor:
            assert daemon.stop() == 0
            assert reason(await visitor.get("calls")) == (503, "unavailable")
            headers = {"X-Toolcell-Page": visitor.token}
            async with visitor.http.stream("GET", "/api/operator/live", headers=headers) as response:
                started = False
                async for _, state in events_of(response):
                    if "unavailable" not in state:
                        assert started
                        break
                    if not started:
                        daemon.launch()
                        started = True
            assert await visitor.answer("calls")


@pytest.mark.parametrize("address", ["192.0.2.1:0", "./page.sock"])
def test_only_loopback_is_served(page_daemon: RunningDaemon, address: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "toolcell.cli", "ui", address, "--socket", page_daemon.socket],
        cwd=page_daemon.project,
        env={"PATH": os.environ["PATH"], "HOME": str(page_daemon.directory)},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert ended.returncode == 2
    assert "loopback" in ended.stderr or "reached from other machines" in ended.stderr
