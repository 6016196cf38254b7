"""The certificate of a worker's death: one line with the cause, the evidence for it, and what would change it.

What the daemon ended itself is known by its cause, whatever the exit status says; then comes the kernel's account of the
control group, then the exit status. The line is the same in the log, in the events and in the history of the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from toolcell._printable import printable
from toolcelld.cell.exit import CellExit

LINE_CHARACTERS_MAX: Final = 200
"""Of what it printed last."""
ABORT: Final = "abort"
"""The cause of the end of a worker whose call did not stop."""
OWN: Final = "No setting changes this: the tool's own process did it"
LIMIT: Final = "The limit is `{}`, in its [tool.…] or in [defaults]"
CAUSES: Final[Mapping[str, tuple[str, str]]] = {
    ABORT: ("its call did not stop when it was aborted", "The grace is `abort_grace` in [daemon]"),
    "memory": ("it passed the limit of memory", LIMIT.format("memory")),
    "processes": ("it passed the limit of processes", LIMIT.format("processes")),
    "disk": ("it passed the limit of its temporary directory", LIMIT.format("disk")),
    "cpu": ("it passed the limit of processor time", LIMIT.format("cpu")),
    "deadline": ("its file took too long to load", "The limit is `load_timeout` in [daemon]"),
    "protocol": ("it sent what is no message of a worker", OWN),
    "SIGXCPU": ("the kernel ended it for its processor time", LIMIT.format("cpu")),
    "SIGXFSZ": ("the kernel ended it for the size of a file", LIMIT.format("file_size")),
    "SIGSYS": ("it made a system call that its sandbox ends processes for", "Its profile is `sandbox`, in its [tool.…]"),
    "SIGKILL": (
        "it was killed, and not by Toolcell",
        "No setting changes this: `journalctl -k` tells whether the host was out of memory",
    ),
    "SIGTERM": ("it was ended by a signal, and not by Toolcell", "No setting changes this"),
}  # fmt: skip
"""By cause: what happened, and what would change it."""
KILLED_FOR_MEMORY: Final = {
    True: (
        "the host was out of memory",
        "More memory of the host changes this, or less for each: `memory` in [defaults], `workers` in [daemon]",
    ),
    False: (
        "a control group that its own is in was out of memory",
        "More memory of that group changes this (`MemoryMax=` of a unit), or less for each: `memory` in [defaults]",
    ),
}
"""By whether it was the host: what a kill was that is no worker's own, as the kernel's log has it."""


def certificate(cause: str, evidence: str, cell_exit: CellExit) -> str:
    """Return the line.

    Args:
        cause: What `Worker.crash_cause` says, or `ABORT`.
        evidence: What is known besides, such as how far a limit was passed; may be empty.
        cell_exit: How the cell ended.
    """
    status = cell_exit.cause()
    if cause in CAUSES:
        what, setting = CAUSES[cause]
    elif cause.startswith("exit "):
        what, setting = f"it exited with status {cause[5:]} in the middle of its work", OWN
    else:
        what, setting = f"it was ended by {cause}", OWN
    kernel = cell_exit.kernel
    if cause == "SIGKILL" and kernel is not None:
        what, setting = KILLED_FOR_MEMORY[kernel.host]
    parts = [f"{cause}: {what}"]
    if evidence:
        parts.append(evidence)
    if cell_exit.out_of_memory:
        parts.append("the kernel's account of its control group has it as out of memory")
    if kernel is not None:
        parts.append(f"the kernel's log says {kernel.text!r}")
    if status not in (cause, "lost"):
        parts.append(f"its process ended by {status}")
    if cell_exit.stack:
        parts.append(f"it was at {'; '.join(cell_exit.stack)}")
    if last := _last_line(cell_exit):
        parts.append(f"its last line was {last!r}")
    return printable(f"{'; '.join(parts)}. {setting}.", lines=False)


def _last_line(cell_exit: CellExit) -> str:
    """What the call printed last on stderr."""
    lines = [line.strip() for line in cell_exit.stderr.splitlines() if line.strip()]
    return lines[-1][:LINE_CHARACTERS_MAX] if lines else ""
