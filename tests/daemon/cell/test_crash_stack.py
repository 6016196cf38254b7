"""The report of a crash is read from stderr, within bounds, whatever a tool writes there."""

from __future__ import annotations

import subprocess
import sys
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from toolcelld.cell.crash_stack import FRAMES_MAX, LINE_CHARACTERS_MAX, split

REPORT = """my last words
Fatal Python error: Segmentation fault

Current thread 0x00007f0000000000 [python] (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "/home/ada/shop/.toolcell/tools/price.py", line 9 in <lambda>
  File "/home/ada/shop/.toolcell/tools/price.py", line 12 in price
  File "/opt/toolcell/_authoring/discover.py", line 3 in invoke
  File "/opt/toolcelld/worker/main.py", line 300 in _report
  File "<frozen runpy>", line 88 in _run_code

Extension modules: numpy.core (total: 1)
"""


def test_the_frames_of_the_tool_are_told_without_ours_and_the_innermost_last() -> None:
    printed, frames = split(REPORT)
    assert printed == "my last words\n"
    assert frames == (
        'File "…/price.py", line 12, in price',
        'File "…/price.py", line 9, in <lambda>',
        'File "…/__init__.py", line 519, in string_at',
    )


def test_what_this_interpreter_writes_is_understood() -> None:
    code = "import faulthandler, os\nfaulthandler.enable(2, all_threads=False)\ndef f(): os.abort()\nf()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert split(done.stderr)[1] == ('File "<string>", line 4, in <module>', 'File "<string>", line 3, in f')


def test_without_a_report_everything_is_what_was_printed() -> None:
    assert split('Traceback\n  File "a", line 1 in f\n') == ('Traceback\n  File "a", line 1 in f\n', ())


@given(st.text(), st.lists(st.tuples(st.text(), st.integers(), st.text())))
def test_a_report_that_a_tool_writes_is_bounded_and_controls_no_terminal(
    before: str, frames: list[tuple[str, int, str]]
) -> None:
    told = "".join(f'  File "{path * 99}\x1b[2J", line {line} in {name}\x07\n' for path, line, name in frames)
    _, shown = split(f"{before}Fatal Python error: x\n\nThread\n{told}")
    assert len(shown) <= FRAMES_MAX
    assert all(len(line) <= LINE_CHARACTERS_MAX for line in shown)
    assert not any(unicodedata.category(letter) == "Cc" for line in shown for letter in line)
