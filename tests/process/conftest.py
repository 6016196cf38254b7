"""These tests have real daemons."""

from tests.daemons import daemon, lasting_daemon, make_daemon, shared_daemon

__all__ = ["daemon", "lasting_daemon", "make_daemon", "shared_daemon"]
