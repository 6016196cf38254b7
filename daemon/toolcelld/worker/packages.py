"""Gives a worker the packages of an environment, inside the confined cell.

Where the packages fit the interpreter that runs already, they are added to it (`adopt`). Where they do not, the worker
executes the other interpreter (`execute`), which starts in `__main__`, adopts them there and says hello again.
In both ways the start-up code of the environment (`.pth` files) runs after everything of the cell was put on.

This module and what it imports need the standard library only: it runs before the packages are there.
"""

from __future__ import annotations

import json
import os
import signal
import site
import sys
from dataclasses import asdict
from typing import Final, NoReturn

from toolcelld.sandbox.policy import PythonSetup
from toolcelld.sandbox.setup import ABORT, ABORT_SIGNAL, PROTOCOL, REPORTS, CellPlan
from toolcelld.sandbox.system_calls import denied_syscalls, seccomp, sole_exec

EXECUTED: Final = "cell"
"""The word for `__main__` that says what it was executed for."""
DIRECTORIES: Final = ("site-packages", "dist-packages")


def adopt(python: PythonSetup) -> None:
    """Add the packages of an environment to this interpreter, before its own, and run their start-up code."""
    sys.executable, sys.prefix, sys.exec_prefix = python.executable, python.prefix, python.prefix
    own = len(sys.path)
    for place in python.packages:
        site.addsitedir(place)
    added = sys.path[own:]
    del sys.path[own:]
    position = next((i for i, path in enumerate(sys.path) if path.endswith(DIRECTORIES)), len(sys.path))
    sys.path[position:position] = added


def execute(python: PythonSetup, plan: CellPlan, roots: tuple[str, ...]) -> NoReturn:
    """Replace this process by the interpreter; raises `OSError` if that fails.

    Args:
        python: The interpreter.
        plan: The cell, with everything put on but the filter that refuses programs with an error of permission.
        roots: The directories of Toolcell's packages.
    """
    assert plan.setup is not None
    policy = plan.setup.policy
    wanted = denied_syscalls.filter_of(policy, memory_files=plan.setup.memory_files)
    facts = {
        "python": asdict(python),
        "enclosure": plan.enclosure,
        "scoped": plan.scoped,
        "layers": plan.layers,
        "filter": asdict(wanted) if policy.enclosure != "none" and not policy.execute else None,
    }
    # Until the new interpreter has its own handler, the signal would end it.
    signal.signal(ABORT_SIGNAL, signal.SIG_IGN)
    for number in (PROTOCOL, ABORT, REPORTS):
        os.set_inheritable(number, True)
    entry = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
    # Without `site` (-S): its start-up code runs only after the last filter is loaded.
    words = [python.program, "-I", "-S", entry, EXECUTED, json.dumps(facts), *roots]
    if facts["filter"] is None or plan.asking is not None:  # the guard lets it through, and no other
        os.execv(python.program, words)
    # A project can bring an interpreter of its own, so the filter that it loads itself comes too late.
    sole_exec.execute(python.program, words, os.environ)


def resume(text: str) -> CellPlan:
    """Load the last filter in the executed interpreter, adopt its packages, and return what is known of the cell."""
    facts = json.loads(text)
    for number in (PROTOCOL, ABORT, REPORTS):
        os.set_inheritable(number, False)
    if facts["filter"] is not None:
        seccomp.load(denied_syscalls.Filter(**facts["filter"]))
    python = PythonSetup.from_json(facts["python"])
    layers = [*facts["layers"], f"interpreter {python.program}"]
    plan = CellPlan(
        descriptors=(), zygote_pid=0, enclosure=facts["enclosure"], scoped=facts["scoped"], layers=layers
    )
    adopt(python)
    return plan
