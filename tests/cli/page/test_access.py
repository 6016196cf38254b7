"""Links and sessions: each is good once, for a time, and for one process."""

from __future__ import annotations

import pytest

from toolcell.cli.page import access
from toolcell.cli.page.access import PageAccess, PageSession


class Clock:
    """A clock that a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("toolcell.cli.page.access.time.monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def shown(name: str, value: str) -> dict[str, object]:
    """A request with a cookie."""
    return {"headers": [(b"cookie", f"other=1; {name}={value}".encode())]}


def test_a_link_opens_one_session_and_only_once(clock: Clock) -> None:
    own = PageAccess()
    secret = own.link(may_act=True)
    opened = own.open(secret)
    assert opened is not None
    assert opened[1].may_act
    assert own.open(secret) is None
    assert own.open("") is None
    assert own.open(secret[:-1]) is None


def test_a_link_is_good_for_ten_minutes(clock: Clock) -> None:
    own = PageAccess()
    early, late = own.link(may_act=False), own.link(may_act=False)
    clock.now += access.LINK_SECONDS - 1
    assert own.open(early) is not None
    clock.now += 1
    assert own.open(late) is None


def test_a_session_is_found_by_its_cookie_until_it_is_closed(clock: Clock) -> None:
    own = PageAccess()
    opened = own.open(own.link(may_act=False))
    assert opened is not None
    value, session = opened
    assert own.find(shown(own.cookie, value)) is session
    assert own.find(shown(own.cookie, value + "x")) is None
    assert own.find(shown("toolcell", value)) is None
    assert own.find({"headers": []}) is None
    own.close(session)
    own.close(session)
    assert own.find(shown(own.cookie, value)) is None


def test_a_session_ends_when_it_is_not_used_and_when_it_is_old(clock: Clock) -> None:
    own = PageAccess()
    first = own.open(own.link(may_act=False))
    assert first is not None
    clock.now += access.IDLE_SECONDS
    assert own.find(shown(own.cookie, first[0])) is None

    second = own.open(own.link(may_act=False))
    assert second is not None
    for _ in range(int(access.SESSION_SECONDS / access.IDLE_SECONDS) * 2 - 1):
        clock.now += access.IDLE_SECONDS / 2
        assert own.find(shown(own.cookie, second[0])) is second[1]
    clock.now += access.IDLE_SECONDS / 2
    assert own.find(shown(own.cookie, second[0])) is None


def test_the_oldest_session_ends_for_one_too_many(clock: Clock) -> None:
    own = PageAccess()
    opened = [own.open(own.link(may_act=False)) for _ in range(access.SESSIONS_MAX + 1)]
    found = [own.find(shown(own.cookie, each[0])) for each in opened if each is not None]
    assert found == [None, *(each[1] for each in opened[1:] if each is not None)]


def test_another_process_knows_neither_link_nor_cookie(clock: Clock) -> None:
    own, other = PageAccess(), PageAccess()
    assert own.cookie != other.cookie
    assert other.open(own.link(may_act=True)) is None
    opened = own.open(own.link(may_act=True))
    assert opened is not None
    assert other.find(shown(own.cookie, opened[0])) is None
    assert other.find(shown(other.cookie, opened[0])) is None


@pytest.mark.parametrize("cookie", [b"\xff\xfe", b"=;=;=", b"a" * 100_000, b'toolcell="\\', b"\x00"])
def test_a_cookie_of_anything_is_no_session(cookie: bytes) -> None:
    assert PageAccess().find({"headers": [(b"cookie", cookie)]}) is None


def test_what_a_session_shows_is_of_that_session_alone() -> None:
    assert PageSession(may_act=True).forgery != PageSession(may_act=True).forgery
