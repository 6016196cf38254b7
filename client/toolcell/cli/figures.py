"""Figures as people read them: sizes, spans, times that are near."""

from __future__ import annotations

from datetime import datetime, timedelta

__all__ = ["ago", "clean", "size", "span", "until"]

_UNITS = ("bytes", "kB", "MB", "GB", "TB")
_STEPS = ((86400.0, "days", "day"), (3600.0, "h", "h"), (60.0, "min", "min"))


def size(count_bytes: int) -> str:
    """1442 → "1.4 kB"."""
    value, place = float(count_bytes), 0
    while value >= 999.5 and place + 1 < len(_UNITS):
        value, place = value / 1000, place + 1
    return f"{value:.1f} {_UNITS[place]}" if place and value < 9.95 else f"{value:.0f} {_UNITS[place]}"


def span(seconds: float) -> str:
    """0.004 → "4 ms", 1.42 → "1.4 s", 300 → "5 min"."""
    if seconds < 0.0995:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    for step_seconds, many, one in _STEPS:
        if seconds >= 2 * step_seconds:
            return f"{seconds // step_seconds:.0f} {many}"
        if seconds >= step_seconds and step_seconds > 60:
            return f"1 {one}"
    return f"{seconds:.0f} s"


def ago(time: datetime | None, now: datetime) -> str:
    """ "12 s ago"; "-" for what has not been."""
    if time is None:
        return "-"
    seconds = (now - time).total_seconds()
    if seconds < 0.5:
        return "now"
    return f"{seconds:.0f} s ago" if seconds < 10 else f"{span(seconds)} ago"


def until(time: datetime, now: datetime) -> str:
    """ "until 14:05", "until Friday", "until 12 March", in the zone that `now` has."""
    local = time.astimezone(now.tzinfo)
    if local.date() == now.date():
        return f"until {local:%H:%M}"
    if local - now <= timedelta(days=7):
        return f"until {local:%A}"
    return f"until {local.day} {local:%B}" if local.year == now.year else f"until {local.day} {local:%B %Y}"


def clean(text: str) -> str:
    """One line for a terminal: what somebody's tool says must not rewrite the screen."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in " ".join(text.split()))
