"""These tests have real daemons."""

from tests.daemons import daemon, make_daemon, shared_daemon, spared

__all__ = ["daemon", "make_daemon", "shared_daemon", "spared"]
