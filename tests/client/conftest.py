"""The face without async is tested in front of a real daemon; everything else here has one that follows a script."""

from tests.process.conftest import daemon, make_daemon

__all__ = ["daemon", "make_daemon"]
