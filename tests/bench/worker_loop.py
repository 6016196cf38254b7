"""The loop of a worker without a cell, as `instructions` counts it: what a fork from the zygote runs, in a process of its own.

    python -m tests.bench.worker_loop PROTOCOL ABORT REPORTS

The arguments are the numbers of its descriptors.
"""

from __future__ import annotations

import fcntl
import os
import sys
from typing import Final

from toolcelld.sandbox.setup import ABORT, PROTOCOL, REPORTS, CellPlan
from toolcelld.worker import main as worker
from toolcelld.worker.zygote.warm_up import warm_up

ABOVE: Final = 20
"""Descriptors that are no one's here."""


def main() -> None:
    """Run calls until the daemon's end says otherwise."""
    wanted = (PROTOCOL, ABORT, REPORTS)
    passed = [fcntl.fcntl(int(number), fcntl.F_DUPFD, ABOVE) for number in sys.argv[1:]]
    for source, target in zip(passed, wanted, strict=True):
        os.dup2(source, target)
    warm_up()
    worker.main(CellPlan(descriptors=(), zygote_pid=0), resumed=True)


if __name__ == "__main__":
    main()
