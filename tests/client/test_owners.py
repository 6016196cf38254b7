"""Which groups no other user is in."""

from __future__ import annotations

import grp
import pwd

import pytest

from toolcell import _owners as owners

ME = ("me", "x", 4321, 4321, "", "/", "/bin/sh")
OTHER = ("other", "x", 4322, 50, "", "/", "/bin/sh")


@pytest.mark.parametrize(
    ("number", "name", "members", "users", "private"),
    [
        (0, "root", ["root"], [ME], True),
        (4321, "me", [], [ME], True),
        (4321, "me", ["other"], [ME], False),
        (4321, "people", [], [ME], False),
        (50, "staff", [], [ME], True),
        (50, "staff", ["me"], [ME], True),
        (50, "staff", ["other"], [ME], False),
        (50, "staff", [], [ME, OTHER], False),
        (5000, "project", [], [ME], False),  # a directory service need not list who is in it
    ],
)
def test_a_group_is_private_if_it_is_known_that_no_other_is_in_it(
    number: int,
    name: str,
    members: list[str],
    users: list[tuple[str, str, int, int, str, str, str]],
    private: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def user_of(_: int) -> pwd.struct_passwd:
        return pwd.struct_passwd(ME)

    def group_of(_: int) -> grp.struct_group:
        return grp.struct_group((name, "x", number, members))

    monkeypatch.setattr(pwd, "getpwuid", user_of)
    monkeypatch.setattr(pwd, "getpwall", lambda: [pwd.struct_passwd(user) for user in users])
    monkeypatch.setattr(grp, "getgrgid", group_of)
    owners._is_private.cache_clear()  # pyright: ignore[reportPrivateUsage]
    try:
        assert owners._is_private(number, 4321) is private  # pyright: ignore[reportPrivateUsage]
    finally:
        owners._is_private.cache_clear()  # pyright: ignore[reportPrivateUsage]
