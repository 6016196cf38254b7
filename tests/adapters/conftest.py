"""Adapters are tested in front of a real daemon."""

from tests.process.conftest import daemon, make_daemon

__all__ = ["daemon", "make_daemon"]
