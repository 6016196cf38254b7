"""The contract: its generated code is up to date, it lints clean, and its comments can serve as the manual."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

PROTO = Path(__file__).parent.parent / "proto"
OURS = "toolcell_proto"


def generator(root: Path) -> ModuleType:
    """proto/generate.py, working on the directory `root`."""
    spec = importlib.util.spec_from_file_location("generate", PROTO / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    setattr(module, "ROOT", root)  # noqa: B010 -- an assignment is what the type checkers refuse on a module
    return module


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the contract's sources, to be spoilt."""
    root = tmp_path / "proto"
    for source in PROTO.glob(f"{OURS}/**/*.proto"):
        target = root / source.relative_to(PROTO)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    return root


def drifted(generated: Path) -> list[str]:
    """The checked-in files that are not what was generated now."""
    names = {str(path.relative_to(generated)) for path in generated.rglob("*_pb2*")}
    names |= {
        str(path.relative_to(PROTO)) for path in PROTO.rglob("*_pb2*.py*") if "__pycache__" not in path.parts
    }
    assert names
    return sorted(name for name in names if read(generated / name) != read(PROTO / name))


def read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def test_the_generated_code_is_what_the_contract_generates(tmp_path: Path) -> None:
    generator(PROTO).generate(tmp_path)
    assert drifted(tmp_path) == [], "run: make generate"


def test_an_edit_that_was_not_generated_is_noticed(copy: Path, tmp_path: Path) -> None:
    source = copy / OURS / "v1" / "operator.proto"
    source.write_text(source.read_text().replace("string kill_method = 16;", "string kill_method = 170;"))
    out = tmp_path / "out"
    out.mkdir()
    generator(copy).generate(out)
    assert f"{OURS}/v1/operator_pb2.py" in drifted(out)


def lint(root: Path, place: Path) -> list[str]:
    """What buf says against our files below `root`; not against Google's, which the image holds as well."""
    image = place / "image.binpb"
    generator(root).image(image)
    buf = Path(sys.executable).with_name("buf")
    done = subprocess.run(
        [buf, "lint", image, "--config", PROTO / "buf.yaml", "--path", OURS],
        cwd=root,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode == 0) == (done.stdout == ""), done.stderr
    return done.stdout.splitlines()


def test_buf_has_nothing_to_say_against_the_contract(tmp_path: Path) -> None:
    assert lint(PROTO, tmp_path) == []


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        ("uint32 pid = 4;", "uint32 Pid = 4;", "lower_snake_case"),
        ("  // Its process id.\n", "", "non-empty comment"),
        ("STOPPED_KILLED = 2", "KILLED = 2", "STOPPED_"),
    ],
)
def test_buf_sees_a_fault_in_the_contract(good: str, bad: str, said: str, copy: Path, tmp_path: Path) -> None:
    for source in copy.rglob("*.proto"):
        source.write_text(source.read_text().replace(good, bad, 1))
    assert any(said in line for line in lint(copy, tmp_path))


def without_comment(file: descriptor_pb2.FileDescriptorProto) -> Iterator[str]:
    """The names in a .proto file that no comment stands above. Paths are numbers, as in descriptor.proto."""
    commented = {
        tuple(place.path) for place in file.source_code_info.location if place.leading_comments.strip()
    }

    def visit(thing: Any, name: str, path: tuple[int, ...]) -> Iterator[str]:
        if isinstance(thing, descriptor_pb2.DescriptorProto) and thing.options.map_entry:
            return  # made by the compiler for a map, whose field has the comment
        if path and path not in commented:
            yield name
        for field, children in thing.ListFields():
            if field.name in {
                "message_type",
                "nested_type",
                "enum_type",
                "service",
                "method",
                "field",
                "value",
            }:
                for n, child in enumerate(children):
                    yield from visit(child, f"{name}.{child.name}", (*path, field.number, n))

    return visit(file, file.package, ())


def descriptors(root: Path, place: Path) -> Iterator[descriptor_pb2.FileDescriptorProto]:
    image = place / "image.binpb"
    generator(root).image(image)
    files = descriptor_pb2.FileDescriptorSet.FromString(image.read_bytes()).file
    return (file for file in files if file.name.startswith(OURS))


def test_every_service_rpc_message_field_and_value_has_a_comment(tmp_path: Path) -> None:
    assert [name for file in descriptors(PROTO, tmp_path) for name in without_comment(file)] == []


def test_a_missing_comment_is_noticed(copy: Path, tmp_path: Path) -> None:
    source = copy / OURS / "v1" / "toolcell.proto"
    text = source.read_text()
    for comment in ("  // The tool returned.\n", "// A tool.\n", "  // Starts a call, or rejoins it.\n"):
        text = text.replace(comment, "")
    source.write_text(text)
    names = [name for file in descriptors(copy, tmp_path) for name in without_comment(file)]
    assert names == ["toolcell.v1.Tool", "toolcell.v1.OutcomeKind.OUTCOME_KIND_OK"]
