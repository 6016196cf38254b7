"""The environment of a daemon that an engine has started: what a user's own daemon has, and nothing of the engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

KEPT: Final = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TZ", "USER")
"""With `LC_*` and `XDG_*`. `RAY_*`, `KUBERNETES_*`, and what an engine sets for what it starts, such as `CUDA_VISIBLE_DEVICES` and
`PYTHONPATH`, is not there."""


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what of an environment a daemon gets."""
    kept = {name: value for name, value in environment.items() if name.startswith(("LC_", "XDG_"))}
    return {**kept, **{name: environment[name] for name in KEPT if name in environment}}
