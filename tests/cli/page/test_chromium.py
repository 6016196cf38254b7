"""The page in the real Chromium, of Debian's package: each view and action, live, by the keyboard, and with hostile texts.

`make test-page` fetches it. With TOOLCELL_PICTURES a picture of each view is written there; docs/page.md shows some of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest
from tests.cli.page.conftest import SECONDS_MAX, Page, serving
from tests.daemons import RunningDaemon

from toolcell.client import Outcome, blocking
from toolcell_proto.v1 import operator_pb2 as op

PLACE: Final = Path(os.environ.get("TOOLCELL_CHROMIUM", ""))
AXE: Final = Path(os.environ.get("TOOLCELL_AXE", ""))
PICTURES: Final = os.environ.get("TOOLCELL_PICTURES")
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not PLACE.name, reason="Chromium is not installed: make test-page"),
]
MILLISECONDS_MAX: Final = 90_000
"""For what takes a second at most; other tests may have the processors."""
SIZES: Final = {"360": (360, 740), "1440": (1440, 900)}
PICTURE_PIXELS_MAX: Final = 800
"""Of the height of a picture; a file of the repository has a bound."""
VIEWS: Final = ("overview", "calls", "call", "tools", "tool", "problems", "audit")
HOSTILE: Final = (
    "\u202egnp.exe\x07\x1b[31m\u200b<img src=x onerror='window.pwned=1'><script>window.pwned=1</script>"
)
ESCAPED: Final = r"\u202egnp.exe\u0007\u001b[31m\u200b<img src=x"

ASKS: Final = """
from toolcell import tool

@tool(network=["api.example.com"], secrets=["API_KEY"])
def fetch_rates() -> str:
    \"\"\"Fetch the rates of today.\"\"\"
    return ""
"""

# Without types, as most environments have no playwright.
Tab = Any
Browser = Any


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser without a window."""
    libraries = [*PLACE.glob("usr/lib/*-linux-gnu"), *PLACE.glob("usr/lib/*-linux-gnu/pulseaudio")]
    with import_module("playwright.sync_api").sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=PLACE / "usr/lib/chromium/chromium-headless-shell",
            args=["--no-sandbox"] if os.geteuid() == 0 else [],
            env={"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": ":".join(map(str, libraries))},
        )
        yield found
        found.close()


class Seat:
    """A page that was opened once, for many tabs."""

    def __init__(self, browser: Browser, page: Page) -> None:
        self.page = page
        self._browser = browser
        context = browser.new_context()
        tab = context.new_page()
        tab.goto(page.link, timeout=MILLISECONDS_MAX)
        tab.get_by_role("heading", name="Overview").wait_for(timeout=MILLISECONDS_MAX)
        assert page.secret not in tab.url
        self._state = context.storage_state()
        context.close()

    @contextmanager
    def tab(self, view: str = "overview", *, size: str = "1440", scheme: str = "light") -> Generator[Tab]:
        """A tab with a view, in which nothing fails and nothing is asked of others."""
        width, height = SIZES[size]
        context = self._browser.new_context(
            storage_state=self._state, viewport={"width": width, "height": height}, color_scheme=scheme
        )
        context.set_default_timeout(MILLISECONDS_MAX)
        tab = context.new_page()
        wrong: list[str] = []
        for event, tell in self._listeners(wrong).items():
            tab.on(event, tell)
        try:
            tab.goto(f"{self.page.url}/#/{view}")
            tab.locator("main h1").wait_for()
            yield tab
            assert tab.evaluate("window.pwned") is None
            assert wrong == []
        finally:
            context.close()

    def _listeners(self, wrong: list[str]) -> dict[str, Callable[[Any], None]]:
        """Write down what must not happen."""

        def failed(error: Any) -> None:
            wrong.append(str(error))

        def said(message: Any) -> None:
            # A request that is refused is shown by the page.
            if message.type == "error" and not message.text.startswith("Failed to load resource"):
                wrong.append(message.text)

        def asked(request: Any) -> None:
            if not request.url.startswith(self.page.url):
                wrong.append(f"asks for {request.url}")

        return {"pageerror": failed, "console": said, "request": asked}


class Agent:
    """An agent, whose calls are made by threads: the test's own has the loop of the browser."""

    def __init__(self, session: blocking.Session, threads: ThreadPoolExecutor) -> None:
        self._session = session
        self._threads = threads

    def call(self, tool: str, **arguments: Any) -> Outcome:
        """Call a tool and wait for its end."""
        return self._threads.submit(self._session.call, tool, arguments).result(SECONDS_MAX)

    def begin(self, tool: str) -> tuple[str, Future[Outcome]]:
        """Begin a call; returns its id and its outcome."""
        call_id = f"c-{os.urandom(8).hex()}"
        return call_id, self._threads.submit(self._session.call, tool, call_id=call_id)


@contextmanager
def connected(daemon: RunningDaemon, agent: str = "tests") -> Generator[Agent]:
    """An agent; its calls are aborted at the end."""
    stay = blocking.connect(daemon.socket, directory=str(daemon.project), agent=agent, daemon="running")
    with ThreadPoolExecutor(8) as threads, ExitStack() as stack:
        session = threads.submit(stack.enter_context, stay).result(SECONDS_MAX)
        try:
            yield Agent(session, threads)
        finally:
            abort_all(daemon)
            threads.submit(stack.close).result(SECONDS_MAX)


def abort_all(daemon: RunningDaemon) -> None:
    """Abort every call."""
    daemon.ask("Operator/AbortCalls", op.AbortCallsRequest(all=True), op.AbortCallsResponse)


@pytest.fixture(scope="module")
def calls(page_daemon: RunningDaemon) -> dict[str, str]:
    """The ids of calls that have ended, by tool; and files with problems."""
    tools = page_daemon.project / ".toolcell" / "tools"
    (tools / "broken.py").write_text("from toolcell import tool\n\n@tool\ndef broken(:\n")
    (tools / "asks.py").write_text(ASKS)
    with connected(page_daemon) as agent:
        for number in range(5):
            agent.call("count", text="word " * number)
        begun = {tool: agent.begin(tool) for tool in ("fail", "die", "print_much")}
        for _, outcome in begun.values():
            outcome.result(SECONDS_MAX)
        return {tool: call_id for tool, (call_id, _) in begun.items()}


@pytest.fixture(scope="module")
def watching(browser: Browser, page_daemon: RunningDaemon, calls: dict[str, str]) -> Iterator[Seat]:
    with serving(page_daemon) as page:
        yield Seat(browser, page)


@pytest.fixture(scope="module")
def operating(browser: Browser, page_daemon: RunningDaemon, calls: dict[str, str]) -> Iterator[Seat]:
    with serving(page_daemon, "--operate") as page:
        yield Seat(browser, page)


def address(view: str, calls: dict[str, str]) -> str:
    """The address of a view, with something to show."""
    return {"call": f"call/{calls['print_much']}", "tool": "tool/count"}.get(view, view)


def settled(tab: Tab, view: str) -> None:
    """Wait until a view shows what it is for."""
    shown = {
        "overview": tab.get_by_role("region", name="Workers", exact=True),
        "calls": tab.get_by_role("region", name="Calls"),
        "call": tab.get_by_role("button", name="First part"),
        "tools": tab.get_by_role("region", name="Tools"),
        "tool": tab.get_by_role("region", name="Settings"),
        "problems": tab.get_by_role("region", name="Trust that is wanted"),
        "audit": tab.get_by_role("region", name="Decisions"),
    }
    shown[view].wait_for()


def no_barrier(tab: Tab) -> None:
    """Fail with what axe-core finds."""
    tab.evaluate(AXE.read_text())
    found = tab.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    assert [
        (each["id"], [node["target"] for node in each["nodes"]][:3], each["nodes"][0]["failureSummary"])
        for each in found["violations"]
    ] == []


def fits(tab: Tab) -> None:
    """Fail where the page is wider than its window; tables scroll in themselves."""
    wide, window = tab.evaluate("[document.scrollingElement.scrollWidth, window.innerWidth]")
    assert wide <= window


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("view", VIEWS)
def test_each_view_is_whole_in_light_and_dark_narrow_and_wide(
    operating: Seat, calls: dict[str, str], view: str, size: str, scheme: str
) -> None:
    with operating.tab(address(view, calls), size=size, scheme=scheme) as tab:
        settled(tab, view)
        fits(tab)
        no_barrier(tab)
        if PICTURES:
            width, height = SIZES[size]
            clip = {"x": 0, "y": 0, "width": width, "height": min(height, PICTURE_PIXELS_MAX)}
            tab.screenshot(path=Path(PICTURES) / f"{view}-{size}-{scheme}.png", clip=clip)


def test_who_may_only_look_sees_no_action(watching: Seat, calls: dict[str, str]) -> None:
    with watching.tab() as tab:
        for view in VIEWS:
            tab.goto(f"{watching.page.url}/#/{address(view, calls)}")
            settled(tab, view)
            names = {each.inner_text() for each in tab.get_by_role("button").all()}
            assert names <= {
                "End session",
                "Show",
                "Clear",
                "First part",
                "Earlier",
                "Later",
                "Last part",
                "Look again",
            }
            assert not tab.locator("dialog").count()
        tab.get_by_text("read-only", exact=True).wait_for()


def test_a_link_opens_once_and_a_strange_browser_sees_nothing(watching: Seat, browser: Browser) -> None:
    for url in (watching.page.link, f"{watching.page.url}/#/audit"):
        context = browser.new_context()
        tab = context.new_page()
        tab.goto(url)
        tab.get_by_role("alert").filter(has_text="toolcell ui").wait_for(timeout=MILLISECONDS_MAX)
        assert not tab.locator("table").count()
        context.close()


def test_what_happens_is_shown_without_a_reload(operating: Seat, page_daemon: RunningDaemon) -> None:
    with operating.tab() as tab, connected(page_daemon, "an agent") as agent:
        settled(tab, "overview")
        running = tab.get_by_role("region", name="Calls that wait or run")
        tab.get_by_text("No call waits or runs.").wait_for()
        call_id, outcome = agent.begin("wait")
        running.get_by_role("link", name="wait").wait_for()
        running.get_by_text("an agent").wait_for()
        tab.goto(f"{operating.page.url}/#/call/{call_id}")
        tab.get_by_text("running", exact=True).wait_for()
        abort_all(page_daemon)
        assert outcome.result(SECONDS_MAX).kind == "aborted"
        tab.get_by_text("ended: aborted").wait_for()
        tab.get_by_role("link", name="Overview").click()
        tab.get_by_text("No call waits or runs.").wait_for()


def confirm(tab: Tab, label: str, reason: str = "") -> None:
    """Press a button that asks, and say yes."""
    tab.get_by_role("button", name=label, exact=True).first.click()
    dialog = tab.locator("dialog[open]")
    if reason:
        dialog.get_by_role("textbox").fill(reason)
    dialog.get_by_role("button", name=label, exact=True).click()
    dialog.wait_for(state="hidden")
    tab.get_by_text(re.compile("^Done: ")).wait_for()


def test_each_action_is_done_by_the_page(operating: Seat, page_daemon: RunningDaemon) -> None:
    with operating.tab("tool/count") as tab, connected(page_daemon) as agent:
        settled(tab, "tool")
        confirm(tab, "Disable", "it counts wrong")
        tab.get_by_text("Disabled: it counts wrong.").wait_for()
        tab.get_by_role("link", name="Problems").click()
        tab.get_by_role("region", name="Disabled tools").get_by_text("it counts wrong").wait_for()
        confirm(tab, "Enable")
        tab.get_by_text("No tool is disabled.").wait_for()

        tab.goto(f"{operating.page.url}/#/tool/count")
        settled(tab, "tool")
        confirm(tab, "Quarantine", "it crashes")
        tab.get_by_role("button", name="Release").wait_for()
        tab.get_by_role("link", name="Problems").click()
        tab.get_by_role("region", name="Files in quarantine").get_by_text("it crashes").wait_for()
        confirm(tab, "Release")
        tab.get_by_text("No file is in quarantine.").wait_for()

        (first_id, first), (_, second), (_, third) = (agent.begin("wait") for _ in range(3))
        tab.goto(f"{operating.page.url}/#/call/{first_id}")
        tab.get_by_text("running", exact=True).wait_for()
        confirm(tab, "Abort", "too slow")
        assert "too slow" in first.result(SECONDS_MAX).message
        tab.goto(f"{operating.page.url}/#/tool/wait")
        settled(tab, "tool")
        confirm(tab, "Abort its calls", "all too slow")
        assert "all too slow" in second.result(SECONDS_MAX).message
        assert third.result(SECONDS_MAX).kind == "aborted"
        confirm(tab, "Restart its workers")

        tab.get_by_role("link", name="Overview").click()
        settled(tab, "overview")
        _, last = agent.begin("wait")
        tab.get_by_role("region", name="Calls that wait or run").get_by_role(
            "link", name="wait"
        ).first.wait_for()
        confirm(tab, "Abort all calls", "the end")
        assert "the end" in last.result(SECONDS_MAX).message
        confirm(tab, "Drain", "a restart")
        tab.get_by_text("New calls are refused: draining, a restart.").wait_for()
        confirm(tab, "End the drain")
        tab.get_by_text("New calls are refused").wait_for(state="hidden")
        confirm(tab, "Restart workers")
        confirm(tab, "Reload")
        confirm(tab, "Log more")
        tab.get_by_text(re.compile("log from debug on[.]$")).wait_for()

        tab.get_by_role("link", name="Audit").click()
        decisions = tab.get_by_role("region", name="Decisions")
        for said in ("it counts wrong", "it crashes", "all too slow", "the end", "a restart", "debug for"):
            decisions.get_by_text(said).first.wait_for()
        no_barrier(tab)


def test_a_form_calls_the_tool_and_shows_what_it_tells(operating: Seat) -> None:
    with operating.tab("tool/count") as tab:
        form = tab.get_by_role("form", name="Call count")
        form.get_by_label("text (required)").fill("one two\nthree")
        form.get_by_label("unit").select_option("lines")
        form.get_by_label("twice").select_option("true")
        form.get_by_role("button", name="Call", exact=True).click()
        tab.get_by_label("Result of the call").get_by_text("4", exact=True).wait_for()
        no_barrier(tab)
        tab.goto(f"{operating.page.url}/#/tool/wait")
        form = tab.get_by_role("form", name="Call wait")
        form.get_by_label("seconds").fill("never")
        form.get_by_role("button", name="Call", exact=True).click()
        tab.get_by_text("seconds: this is no JSON.").wait_for()
        form.get_by_label("seconds").fill("60")
        form.get_by_role("button", name="Call", exact=True).click()
        tab.get_by_label("Events of the call").get_by_text("1 of 2 it waits now").wait_for()
        form.get_by_role("button", name="Abort this call").click()
        tab.locator(".note").filter(has_text=re.compile("^aborted")).wait_for()


def test_an_output_is_read_in_ranges(operating: Seat, calls: dict[str, str]) -> None:
    with operating.tab(address("call", calls)) as tab:
        tab.get_by_role("button", name="First part").click()
        part = tab.get_by_label("A part of the output")
        part.get_by_text("line 0 <b>").wait_for()
        tab.get_by_role("button", name="Later").click()
        tab.get_by_text("bytes 16384 to 32768").wait_for()
        tab.get_by_role("button", name="Last part").click()
        part.get_by_text("line 19999 <b>").wait_for()
        assert tab.get_by_role("button", name="Later").is_disabled()
        no_barrier(tab)


def test_calls_are_filtered(operating: Seat, calls: dict[str, str]) -> None:
    with operating.tab("calls") as tab:
        settled(tab, "calls")
        tab.get_by_label("Tool", exact=True).fill("die")
        tab.get_by_role("button", name="Show").click()
        rows = tab.get_by_role("region", name="Calls").get_by_role("row")
        tab.get_by_text("crashed (SIGSEGV)").first.wait_for()
        assert all("die" in row.inner_text() for row in rows.all()[1:])
        tab.get_by_label("Tool", exact=True).fill("nothing")
        tab.get_by_role("button", name="Show").click()
        tab.get_by_text("No call fits.").wait_for()
        tab.get_by_role("button", name="Clear").click()
        tab.get_by_label("failed only").check()
        tab.get_by_role("button", name="Show").click()
        tab.get_by_text("tool_error").first.wait_for()


def reach(tab: Tab, wanted: Callable[[str], bool], steps_max: int = 80) -> None:
    """Press Tab until what is wanted has the focus, and see that it shows it."""
    for _ in range(steps_max):
        tab.keyboard.press("Tab")
        name = tab.evaluate("document.activeElement.innerText || document.activeElement.name || ''")
        if wanted(name.strip()):
            style = tab.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert style != "none"
            return
    raise AssertionError("not reached")


def test_everything_is_reached_by_the_keyboard_alone(operating: Seat) -> None:
    with operating.tab() as tab:
        settled(tab, "overview")
        tab.keyboard.press("Tab")
        assert tab.evaluate("document.activeElement.className") == "skip"
        tab.keyboard.press("Enter")
        assert tab.evaluate("document.activeElement.tagName") == "MAIN"
        reach(tab, lambda name: name == "Log more")
        tab.keyboard.press("Enter")
        dialog = tab.locator("dialog[open]")
        dialog.wait_for()
        tab.keyboard.press("Escape")
        dialog.wait_for(state="hidden")
        assert tab.evaluate("document.activeElement.innerText") == "Log more"

        tab.keyboard.press("Shift+Tab")
        tab.goto(f"{operating.page.url}/#/tools")
        settled(tab, "tools")
        reach(tab, lambda name: name == "count")
        tab.keyboard.press("Enter")
        settled(tab, "tool")
        assert tab.evaluate("document.activeElement.tagName") == "MAIN"
        reach(tab, lambda name: name == "Disable")
        tab.keyboard.press("Enter")
        tab.locator("dialog[open]").wait_for()
        tab.keyboard.type("by the keyboard")
        tab.keyboard.press("Enter")
        tab.get_by_text("Disabled: by the keyboard.").wait_for()
        reach(tab, lambda name: name == "Enable")
        tab.keyboard.press("Enter")
        tab.locator("dialog[open]").wait_for()
        tab.keyboard.press("Enter")
        tab.get_by_role("button", name="Disable").wait_for()
        reach(tab, lambda name: name == "text")
        tab.keyboard.type("four words of text")
        reach(tab, lambda name: name == "Call")
        tab.keyboard.press("Enter")
        tab.get_by_label("Result of the call").get_by_text("4", exact=True).wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_what_a_tool_asks_is_answered_by_the_keyboard_alone(operating: Seat, size: str, scheme: str) -> None:
    with operating.tab("tool/inquire", size=size, scheme=scheme) as tab:
        tab.get_by_role("form", name="Call inquire").wait_for()
        question = tab.get_by_role("form", name="Question of inquire")

        def asked(text: str) -> None:
            question.get_by_text(text).wait_for()
            fits(tab)
            no_barrier(tab)
            if PICTURES:
                question.scroll_into_view_if_needed()
                kind = text.partition(" ")[0].lower()
                tab.screenshot(path=Path(PICTURES) / f"question-{kind}-{size}-{scheme}.png")

        def press(title: str) -> None:
            reach(tab, lambda name: name == title)
            tab.keyboard.press("Enter")

        press("Call")
        asked(r"Delete <b>\u202eall?")
        press("Allow")
        asked("Which one?")
        reach(tab, lambda name: name.startswith("red"))
        tab.keyboard.press("ArrowDown")
        press("Answer")
        asked("Your name?")
        reach(tab, lambda name: name == "Answer")
        tab.keyboard.press("Shift+Tab")
        tab.keyboard.press("Control+a")
        tab.keyboard.type("Ada")
        tab.keyboard.press("Tab")
        tab.keyboard.press("Enter")
        asked("Sure?")
        press("Yes")
        tab.get_by_label("Result of the call").get_by_text("blue Ada True").wait_for()
        assert question.count() == 0


@pytest.mark.parametrize("size", SIZES)
def test_hostile_texts_are_shown_and_nothing_else(
    operating: Seat, page_daemon: RunningDaemon, size: str
) -> None:
    file = page_daemon.project / ".toolcell" / "tools" / "<img src=x onerror=window.pwned=1>\u202e.py"
    file.write_text(f"raise ValueError({HOSTILE + 'x' * 10_000!r})\n")
    try:
        with connected(page_daemon, HOSTILE + "a" * 40) as agent:
            failed = agent.call("fail", message=HOSTILE + "x" * 10_000)
            assert failed.kind == "tool_error"
            for name in (HOSTILE, "t" * 200):
                assert agent.call(name).kind == "refused"
            failed_id, outcome = agent.begin("fail")
            outcome.result(SECONDS_MAX)
            agent.begin("wait")
            with operating.tab("overview", size=size) as tab:
                tab.get_by_role("region", name="Calls that wait or run").get_by_text(
                    "gnp.exe"
                ).first.wait_for()
                fits(tab)
                for view in ("calls", f"call/{failed_id}", "tools", "tool/fail", "problems", "audit"):
                    tab.goto(f"{operating.page.url}/#/{view}")
                    tab.locator("main h1").wait_for()
                    if view in ("calls", "problems", "tool/fail"):
                        tab.get_by_text("gnp.exe").first.wait_for()
                        assert ESCAPED in tab.locator("main").inner_text()
                    fits(tab)
                    assert not tab.locator("main img, main script, main iframe").count()
                    no_barrier(tab)
                encoded = tab.evaluate("encodeURIComponent", HOSTILE + "y" * 2000)
                for view in ("tool", "call"):
                    tab.goto(f"{operating.page.url}/#/{view}/{encoded}")
                    tab.get_by_role("heading", name="gnp.exe").wait_for()
                    tab.get_by_role("alert").first.wait_for()
                    fits(tab)
                tab.goto(f"{operating.page.url}/#/tool/%E0%A4%A")
                tab.get_by_role("heading", name="Overview").wait_for()
    finally:
        file.unlink()
