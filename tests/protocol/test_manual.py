"""The manual of the worker protocol says what the code does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import toolcelld
from toolcell._result import BLOCKS_MAX, ImageBlock, Result
from toolcelld import frames, intake, loading, questions, results
from toolcelld.worker import steps, wire
from toolcelld.worker.ending import Ending

MANUAL: Final = (Path(__file__).parents[2] / "docs/worker-protocol.md").read_text(encoding="utf-8")
SOURCES: Final = Path(toolcelld.__file__).parent

BOUNDS: Final = {
    "A header": frames.HEADER_BYTES_MAX,
    "A payload in one frame": frames.PAYLOAD_BYTES_MAX,
    "A message to the worker, chunks joined": wire.MESSAGE_BYTES_MAX,
    "A description, chunks joined": loading.DESCRIPTION_BYTES_MAX,
    "One part of a result": results.PART_BYTES_MAX,
    "Blocks of a result": BLOCKS_MAX,
    "Details of a result that go along; longer ones are kept beside": results.DETAILS_BYTES_MAX,
    "Metadata of a call": intake.METADATA_BYTES_MAX,
    "A question with its patterns and details, a request with its arguments, a reply": questions.QUESTION_BYTES_MAX,
    "Open questions and requests of a call": questions.OPEN_MAX,
    "Records of one `log`": intake.RECORDS_MAX,
}


def table(title: str, first: str) -> list[list[str]]:
    """The rows below a heading of the table whose first column is called so."""
    below = re.split(r"^#+ ", MANUAL.split(f"# {title}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]
    lines = iter(below.splitlines())
    found = [line for line in lines if line.startswith(f"| {first} |")]
    assert len(found) == 1, f"one table with {first}"
    rows = below.split(found[0])[1].splitlines()[2:]
    body = rows[: rows.index("") if "" in rows else None]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in body]


def sent_types(*files: str) -> set[str]:
    """The types of the messages that these sources make."""
    text = "".join((SOURCES / file).read_text(encoding="utf-8") for file in files)
    return set(re.findall(r'"type": "([a-z]+)"', text))


def test_every_bound_of_the_manual_is_the_codes() -> None:
    stated = {row[0]: int(re.sub(r"[^0-9]", "", row[1])) for row in table("Frames", "Bound")}
    assert stated == BOUNDS


def test_the_manual_lists_what_the_daemon_sends() -> None:
    listed = {row[0].strip("`") for row in table("From the daemon", "Type")}
    assert listed == sent_types("workers.py", "questions.py", "frames.py")


def test_the_manual_lists_what_a_worker_sends() -> None:
    listed = {row[0].strip("`") for row in table("From the worker", "Type")}
    told = {"update", "progress", "ask", "request"}  # by the context, under these names
    sent = sent_types("worker/serve.py", "worker/wire.py", "worker/ending.py", "worker/keeper.py") | told
    assert listed == sent - {"text", "image", "resource_link"}


def test_the_manual_lists_the_fields_of_a_result() -> None:
    listed = {row[0].strip("`") for row in table("From the worker", "Field")}
    image = ImageBlock(bytes(frames.PAYLOAD_BYTES_MAX + 1), "image/png")
    ending = Ending("ok", Result((image,), b"{}", "title", b"{}"))
    ending.header.update(dict.fromkeys(("seq", "cpu", "rss", "threads", "limit"), 0))
    (first,) = frames.Decoder().feed(next(ending.frames()))
    assert listed | {"type"} == set(first.header)


def test_the_descriptors_of_the_manual_are_the_codes() -> None:
    numbers = {row[0]: row[1] for row in table("What a worker is born with", "Descriptor")}
    assert numbers[str(steps.LIFE)].startswith("The keeper's life line")
    assert numbers[str(steps.PROTOCOL)].startswith("The protocol")
    assert numbers[str(steps.ABORT)].startswith("The abort channel")
