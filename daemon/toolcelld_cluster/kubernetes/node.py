"""The program of a pod: `python -m toolcelld_cluster.kubernetes.node` copies the keys of its Secret, and becomes toolcelld.

A Secret is mounted for a group to read, and toolcelld takes no key that others than its user can read. The daemon gets an environment
of its own, without the addresses of the cluster that Kubernetes puts into each container.
"""

from __future__ import annotations

import argparse
import os
import sys

from toolcelld.remote.certificates import FILE_BYTES_MAX, NAMES, PLACE
from toolcelld_cluster.environment import clean


def main() -> None:
    """Copy, and become the daemon."""
    arguments = _parser().parse_args()
    os.umask(0o077)
    state = os.path.join(arguments.state, "daemon")  # what is mounted is open to others
    place = os.path.join(state, PLACE)
    os.makedirs(place, exist_ok=True)
    home = os.environ.get("HOME")
    if home:
        os.makedirs(home, exist_ok=True)
    for name in NAMES.values():
        copy(os.path.join(arguments.keys, name), os.path.join(place, name))
    host = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
    command = [
        *(sys.executable, "-P", "-m", "toolcelld"),
        *("--socket", os.path.join(state, "d.sock"), "--state", state),
        *("--listen", f"{host}:{arguments.port}", "--node", arguments.node),
        *("--confined", "--drain", arguments.drain),
    ]
    os.execve(command[0], command, clean(os.environ))


def copy(source: str, target: str) -> None:
    """Copy a key, for this user alone. What is there from an earlier start is replaced."""
    with open(source, "rb") as file:
        content = file.read(FILE_BYTES_MAX)
    made = f"{target}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(made, flags, 0o600), "wb") as file:
        file.write(content)
    os.replace(made, target)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="toolcelld_cluster.kubernetes.node", description="A pod as a node.")
    for name in ("keys", "state", "node", "host", "port", "drain"):
        parser.add_argument(f"--{name}", required=True)
    return parser


if __name__ == "__main__":
    main()
