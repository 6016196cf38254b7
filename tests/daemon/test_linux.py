"""System calls whose effect on a process can be read from the kernel."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from toolcelld.linux import NICE_AHEAD

CAP_SYS_NICE = 23
AHEAD = """
import json, os, sys
from toolcelld import linux

def seen():
    session = open("/proc/self/autogroup").read() if os.path.exists("/proc/self/autogroup") else ""
    return os.getpriority(os.PRIO_PROCESS, 0), session

os.setpriority(os.PRIO_PROCESS, 0, int(sys.argv[1]))
linux.schedule_ahead(session=sys.argv[2] == "session")
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    os.write(write, json.dumps(seen()).encode())
    os._exit(0)
os.wait()
print(json.dumps([seen(), json.loads(os.read(read, 1000))]))
"""


def may_raise() -> bool:
    (effective,) = re.findall(r"^CapEff:\t(\w+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    return bool(int(effective, 16) >> CAP_SYS_NICE & 1)


def ahead(nice: int, whose: str) -> list[tuple[int, int]]:
    """The priorities of a process and its session, and of its child in another one, after `schedule_ahead`."""
    command = [sys.executable, "-c", AHEAD, str(nice), whose]
    found = json.loads(
        subprocess.run(command, stdout=subprocess.PIPE, check=True, start_new_session=True).stdout
    )
    return [(of_process, int(session.rpartition(" ")[2] or 0)) for of_process, session in found]


@pytest.mark.skipif(
    os.getpriority(os.PRIO_PROCESS, 0) > 0 and not may_raise(), reason="has a low priority itself"
)
def test_a_process_is_scheduled_ahead_where_it_may_and_what_it_forks_is_not() -> None:
    raised = NICE_AHEAD if may_raise() else 0
    grouped = raised if Path("/proc/self/autogroup").exists() else 0
    assert ahead(0, "session") == [(raised, grouped), (0, 0)]
    assert ahead(0, "process") == [(raised, 0), (0, 0)]


def test_a_priority_that_was_given_stays() -> None:
    assert ahead(19, "session") == [(19, 0), (19, 0)]


HOLDS = """
import os, signal, sys
from toolcelld import linux

template = os.getpid()
child = os.fork()
if child == 0:
    linux.hold_memory()
    os._exit(7)
_, status = os.waitpid(child, 0)
(holder,) = linux.first_children(template)
_, stopped = os.waitpid(holder, os.WUNTRACED)
pages = int(open(f"/proc/{holder}/statm").read().split()[1])
os.kill(holder, signal.SIGTERM)
os.kill(holder, signal.SIGCONT)
os.kill(holder, signal.SIGKILL)
_, killed = os.waitpid(holder, 0)
print(os.WEXITSTATUS(status), os.WSTOPSIG(stopped) == signal.SIGSTOP, pages > 100, os.WTERMSIG(killed) == signal.SIGKILL)
"""


def test_the_memory_of_a_process_is_held_after_its_end_by_one_that_is_stopped() -> None:
    done = subprocess.run([sys.executable, "-c", HOLDS], stdout=subprocess.PIPE, check=True, text=True)
    assert done.stdout.split() == ["7", "True", "True", "True"]
