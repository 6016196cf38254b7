"""Becomes a program that has a hosts file of its own: `python own_hosts.py FILE PROGRAM ARGUMENT …`.

So that a daemon finds names of a test without a name server, and without a change of the machine.
"""

from __future__ import annotations

import os
import sys

from toolcelld import linux


def main(hosts: str, *program: str) -> None:
    uid, gid = os.geteuid(), os.getegid()
    linux.unshare(linux.CLONE_NEWNS | (linux.CLONE_NEWUSER if uid else 0))
    if uid:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
    linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
    tree = linux.open_tree(hosts)
    linux.move_mount(tree, "/etc/hosts")
    os.close(tree)
    os.execvp(program[0], program)


if __name__ == "__main__":
    main(*sys.argv[1:])
