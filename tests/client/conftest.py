"""The face without async is tested in front of a real daemon; everything else here has one that follows a script."""

from tests.daemons import daemon, make_daemon, shared_daemon, spared

__all__ = ["daemon", "make_daemon", "shared_daemon", "spared"]
