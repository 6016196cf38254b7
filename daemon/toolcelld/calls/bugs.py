"""Our own bugs, kept to the one thing that they concern."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Bugs"]


class Bugs:
    """Within: whatever goes wrong is a bug, and ends what it is told to and nothing else."""

    __slots__ = ("_fail",)

    def __init__(self, fail: Callable[[Exception], None]) -> None:
        self._fail = fail

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if isinstance(error, Exception):
            self._fail(error)
            return True
        return False
