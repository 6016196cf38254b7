"""Prints docs/first-hour.md: `python -m tests.first_hour`, or `make first-hour`."""

from .hour import walk

print(walk()[0], end="")
