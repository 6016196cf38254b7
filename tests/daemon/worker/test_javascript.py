"""The worker in JavaScript, alone: its codec against the vectors of the manual, on each engine."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.engines import ENGINES, NODE, PACKAGES

import toolcelld
from toolcelld.protocol import frames, messages
from toolcelld.worker.engine import MAIN, SOURCES

VECTORS = Path(__file__).parents[3] / "docs/vectors/frames.json"
CHECK = """
import assert from "node:assert";
import fs from "node:fs";
import { Decoder, FrameError, Joiner, encode } from "%s";

const hex = (frames) => frames.map(({ header, payload }) => ({ header, payload: payload.toString("hex") }));
const vectors = JSON.parse(fs.readFileSync("%s", "utf8"));
const seen = { frames: 0, incomplete: 0, broken: 0, messages: 0, written: 0 };
const whole = (vector) => Buffer.from(vector.hex + (vector.then ? vector.then.hex.repeat(vector.then.times) : ""), "hex");

function writes(frames, bytes, name) {
  // JSON of JavaScript has no 1.0.
  if (/[^\\d]\\d+\\.0[,}\\]]/.test(bytes.toString("latin1"))) return;
  assert.deepEqual(Buffer.concat(frames.map(({ header, payload }) => encode(header, payload))), bytes, name);
  seen.written += 1;
}

for (const vector of vectors.frames) {
  const bytes = whole(vector);
  const found = new Decoder().feed(bytes);
  assert.deepEqual(hex(found), vector.frames, vector.name);
  const slow = new Decoder();
  const one = [];
  for (const byte of bytes) one.push(...slow.feed(Buffer.from([byte])));
  assert.deepEqual(hex(one), vector.frames, vector.name);
  if (vector.canonical) writes(found, bytes, vector.name);
  seen.frames += 1;
}
for (const vector of vectors.incomplete) {
  assert.deepEqual(new Decoder().feed(whole(vector)), [], vector.name);
  seen.incomplete += 1;
}
for (const vector of vectors.broken) {
  assert.throws(() => new Decoder().feed(whole(vector)), FrameError, vector.name);
  seen.broken += 1;
}
for (const vector of vectors.messages) {
  const bytes = whole(vector);
  const found = new Decoder().feed(bytes);
  assert.deepEqual(hex(found), [{ header: vector.header, payload: Buffer.from(vector.payload).toString("hex") }]);
  writes(found, bytes, vector.name);
  seen.messages += 1;
}
const joiner = new Joiner();
const part = (type, size, text) => ({ header: { type, ...(size ? { size } : {}) }, payload: Buffer.from(text) });
assert.equal(joiner.add(part("call", 5, "ab")), null);
assert.equal(joiner.add(part("chunk", 0, "cd")), null);
assert.equal(joiner.add(part("chunk", 0, "e")).payload.toString(), "abcde");
for (const wrong of [[part("call", 1, "ab")], [part("call", 3, "ab"), part("retire", 0, "")], [part("call", 3, "ab"), part("chunk", 0, "cd")], [part("call", 3, "ab"), part("chunk", 0, "")], [part("call", 1e9, "ab")]])
  assert.throws(() => { const each = new Joiner(); for (const frame of wrong) each.add(frame); }, FrameError);
console.log(JSON.stringify(seen));
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_it_reads_and_writes_the_vectors_of_the_manual(engine: str, tmp_path: Path) -> None:
    check = tmp_path / "check.mjs"
    check.write_text(CHECK % (Path(SOURCES, "frames.mjs"), VECTORS))
    done = subprocess.run([ENGINES[engine], check], check=False, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    vectors = json.loads(VECTORS.read_text(encoding="utf-8"))
    assert {kind: seen[kind] for kind in ("frames", "incomplete", "broken", "messages")} == {
        kind: len(vectors[kind]) for kind in ("frames", "incomplete", "broken", "messages")
    }
    assert seen["written"] > len(vectors["messages"]) / 2


def test_its_bounds_are_those_of_the_protocol() -> None:
    source = Path(SOURCES, "frames.mjs").read_text(encoding="utf-8")
    for name, bound in (
        ("HEADER_BYTES_MAX", frames.HEADER_BYTES_MAX),
        ("PAYLOAD_BYTES_MAX", frames.PAYLOAD_BYTES_MAX),
        ("MESSAGE_BYTES_MAX", messages.MESSAGE_BYTES_MAX),
    ):
        assert f"export const {name} = {bound:_};" in source


def test_it_was_built_from_these_sources() -> None:
    sources = [path for path in sorted(Path(SOURCES).glob("*.mjs")) if path.name != "build.mjs"]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    first = Path(MAIN).read_text(encoding="utf-8").partition("\n")[0]
    assert first == f"// {digest}", "run make engines"


def test_what_is_built_anew_is_whole_all_the_time(tmp_path: Path) -> None:
    """Tools run meanwhile, and another interpreter's environment may build the same."""
    place = tmp_path / "daemon/toolcelld/worker/javascript"
    page = tmp_path / "client/toolcell/cli/page/files/vendor"
    shutil.copytree(SOURCES, place)
    page.mkdir(parents=True)
    (place / "vendor" / "stale.mjs").touch()
    before = {path: path.stat().st_size for path in (place / "vendor").rglob("*.mjs") if path.stat().st_size}
    builds = [subprocess.Popen([NODE, place / "build.mjs", PACKAGES]) for _ in range(2)]
    looks = 0
    while any(build.poll() is None for build in builds):
        assert {path: path.stat().st_size for path in before} == before
        looks += 1
    assert [build.returncode for build in builds] == [0, 0]
    assert looks > 10
    assert {*(place / "vendor").rglob("*.mjs")} == {*before}
    assert {path.name for path in page.iterdir()} == {"preact.js", "LICENSES.txt"}


def test_it_lies_where_cells_read_it() -> None:
    assert Path(MAIN).is_file()
    assert Path(MAIN).is_relative_to(Path(toolcelld.__file__).parent)


OLD = """data:text/javascript,Object.defineProperty(process, "versions", { value: { ...process.versions, node: "22.1.0" } })"""


def answer_to_load(main: Path, *options: str) -> tuple[str, Mapping[str, Any]]:
    """Run the worker on Node with a file, and return what it says of its engine and of the file."""
    ours, protocol = socket.socketpair()
    aborting, aborts = socket.socketpair()
    reading, reports = os.pipe()
    ends = (protocol.fileno(), aborts.fileno(), reports)
    shell = f'exec 4<&{ends[0]} 5<&{ends[1]} 6>&{ends[2]}; exec "$@"'
    words = ["bash", "-c", shell, "bash", str(NODE), *options, str(main), '{"layers": []}']
    with subprocess.Popen(words, pass_fds=ends) as process, ours, aborting, open(reading, "rb") as told:
        for end in (protocol, aborts):
            end.close()
        os.close(reports)
        become = {"directory": "/", "project": ""}
        ours.sendall(frames.encode({"type": "become"}, json.dumps(become).encode()))
        load = {"type": "load", "path": "/x/it.ts", "stem": "it", "directory": "/x", "describe": True}
        ours.sendall(frames.encode(load, b"export default 1"))
        decoder, found = frames.Decoder(), list[frames.Frame]()
        while len(found) < 2 and (data := told.read1()):
            found += decoder.feed(data)
        ours.sendall(frames.encode({"type": "retire"}))
        assert process.wait(30) == 0
    hello, answer = found
    return hello.header["python"], answer.header


def test_an_engine_that_is_too_old_says_which_ones_would_do() -> None:
    engine, broken = answer_to_load(Path(MAIN), "--import", OLD)
    assert (engine, broken["type"], broken["stage"]) == ("node 22.1.0", "broken", "import")
    assert "is too old: tools in TypeScript and JavaScript need bun, or node 24 or later" in broken["message"]


def test_an_installation_without_the_libraries_says_how_to_get_them(tmp_path: Path) -> None:
    shutil.copytree(SOURCES, tmp_path / "worker", ignore=shutil.ignore_patterns("vendor"))
    _, broken = answer_to_load(tmp_path / "worker" / "main.mjs")
    assert (broken["type"], broken["stage"]) == ("broken", "import")
    assert "run make engines and install it again" in broken["message"]


def test_a_file_without_a_tool_is_loaded() -> None:
    engine, loaded = answer_to_load(Path(MAIN))
    assert engine.startswith("node 24.")
    assert loaded["type"] == "loaded"
