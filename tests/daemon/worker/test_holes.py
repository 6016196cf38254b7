"""The free places in a zygote's memory."""

from __future__ import annotations

import subprocess
import sys

from tests.daemon.worker.test_immortal import SUPPORTED

PROGRAM = """
from toolcelld.worker.zygote.holes import fill_holes

def pages(blocks):
    return {id(block) // 4096 for block in blocks}

kept = [bytes(70) for _ in range(4000)]
del kept[::2]
filling = fill_holes()
new = [bytes(70) for _ in range(100)]
print(bool(filling), not pages(kept) & pages(new))
"""


def test_new_objects_are_in_pages_without_old_ones_when_the_free_places_are_filled() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, check=True)
    assert ran.stdout == f"{SUPPORTED} {SUPPORTED}\n"


NOT_IN_POOLS = """
from toolcelld.worker.zygote import holes

holes.POOL_BYTES = 1 << 13
print(len(holes.fill_holes()))
"""


def test_an_interpreter_with_other_pools_is_left_as_it_is() -> None:
    ran = subprocess.run([sys.executable, "-c", NOT_IN_POOLS], stdout=subprocess.PIPE, text=True, check=True)
    assert ran.stdout == "0\n"
