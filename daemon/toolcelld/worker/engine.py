"""Executes an engine for TypeScript and JavaScript in the confined cell, in place of the Python worker.

Everything of the cell is put on by then. The engine runs the worker in `javascript/`, which says hello again.
An engine cannot load a filter itself, so that which refuses programs is loaded here, and lets the engine through: see
`toolcelld.sandbox.system_calls.sole_exec`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from typing import Final, NoReturn

from toolcelld.sandbox.policy import PythonSetup
from toolcelld.sandbox.setup import ABORT, ABORT_SIGNAL, PROTOCOL, REPORTS, CellPlan
from toolcelld.sandbox.system_calls import sole_exec

SOURCES: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "javascript")
BUILT: Final = os.path.join(SOURCES, "vendor", "worker.mjs")
"""The worker as one file, which an engine loads some 10 ms faster than its sources."""
MAIN: Final = BUILT if os.path.exists(BUILT) else os.path.join(SOURCES, "main.mjs")
"""What is executed; the sources, where nothing was built, say what such an installation lacks."""
LIBRARIES: Final = os.path.join(SOURCES, "vendor", "packages")
"""The libraries that Toolcell has with it, by their names as packages."""
OPTIONS: Final = {
    "bun": (
        "--no-install",
        "--no-env-file",
        "--config=/dev/null",
    ),  # nothing is fetched, and no file of the project becomes variables or settings
    "node": ("--no-warnings",),  # what it says of its own interfaces, which the user cannot change
}
PROJECT_OPTIONS: Final = "tsconfig.json"
DECORATORS: Final = b'"experimentalDecorators"'
"""The option of a project that Bun reads only where it starts; `paths` it reads beside each file."""
STEERING: Final = ("NODE_OPTIONS", "NODE_PATH", "NODE_REPL_EXTERNAL_MODULE", "BUN_")
"""Variables, or how their names begin, that load code into an engine before the worker runs."""


def execute(engine: PythonSetup, plan: CellPlan) -> NoReturn:
    """Replace this process by the engine; raises `OSError` if that fails.

    Args:
        plan: The cell, with everything put on.
    """
    assert plan.setup is not None
    policy = plan.setup.policy
    # Its default would end the engine, which reads the channel of aborts without a signal.
    signal.signal(ABORT_SIGNAL, signal.SIG_IGN)
    for number in (PROTOCOL, ABORT, REPORTS):
        os.set_inheritable(number, True)
        os.set_blocking(number, True)
    os.chdir(_start(engine))  # the worker goes back
    environment = {name: value for name, value in os.environ.items() if not name.startswith(STEERING)}
    if engine.engine == "bun":
        # The worker unsets it for what a tool starts.
        environment["NODE_PATH"] = os.pathsep.join((*engine.packages, LIBRARIES))
    programs = policy.enclosure == "none" or policy.execute
    layers = [*plan.layers, *(() if programs else (sole_exec.LAYER,)), f"engine {engine.program}"]
    facts = json.dumps({"layers": layers, "packages": engine.packages})
    words = [engine.program, *OPTIONS[engine.engine], MAIN, facts]
    if programs or plan.asking is not None:  # the guard lets it through, and no other
        os.execve(engine.program, words, environment)
    sole_exec.execute(engine.program, words, environment)


def _start(engine: PythonSetup) -> str:
    """Return the directory to start an engine in: "/", where no file of the project configures it.

    For Bun it is that of the nearest options of the project above the tool file, if they are about decorators.
    """
    place = engine.directory if engine.engine == "bun" else ""
    while place not in ("", "/"):
        with contextlib.suppress(OSError), open(os.path.join(place, PROJECT_OPTIONS), "rb") as file:
            return place if DECORATORS in file.read() else "/"
        place = os.path.dirname(place)
    return "/"
