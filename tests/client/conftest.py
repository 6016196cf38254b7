"""The face without async is tested in front of a real daemon; everything else here has one that follows a script."""

from tests.daemons import daemon, lasting_daemon, make_daemon, shared_daemon

__all__ = ["daemon", "lasting_daemon", "make_daemon", "shared_daemon"]
