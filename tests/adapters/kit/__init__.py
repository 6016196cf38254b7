"""The tools that every agent is tested with, as a file; and what tests compare their results with."""

from tests.adapters.kit.kit import PICTURE

__all__ = ["PICTURE"]
