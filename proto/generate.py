"""Regenerate the wire types: `python proto/generate.py`.

The generated code stands beside its source and is checked in, because the generator's
version is a floor for every user: generated code refuses an older protobuf or grpcio.
A test regenerates into a temporary directory and compares.
"""

from __future__ import annotations

import sys
from pathlib import Path

from google.rpc import status_pb2
from grpc_tools import protoc  # pyright: ignore[reportMissingTypeStubs]

ROOT = Path(__file__).parent


def sources() -> list[str]:
    return sorted(str(path) for path in ROOT.glob("toolcell_proto/**/*.proto"))


def includes() -> list[str]:
    common = Path(status_pb2.__file__).parent.parent.parent
    return [f"--proto_path={path}" for path in (ROOT, Path(protoc.__file__).parent / "_proto", common)]


def protoc_run(*options: str) -> None:
    scripts = Path(sys.executable).parent
    code = protoc.main(
        [
            "protoc",
            f"--plugin=protoc-gen-mypy={scripts / 'protoc-gen-mypy'}",
            f"--plugin=protoc-gen-mypy_grpc={scripts / 'protoc-gen-mypy_grpc'}",
            *includes(),
            *options,
            *sources(),
        ]
    )
    if code:
        sys.exit(code)


def generate(out: Path) -> None:
    """Write the Python modules and stubs of every .proto below this directory to `out`."""
    protoc_run(
        f"--python_out={out}",
        f"--grpc_python_out={out}",
        f"--mypy_out=quiet:{out}",
        f"--mypy_grpc_out=quiet,only_async:{out}",
    )


def image(out: Path) -> None:
    """Write a descriptor set with comments to `out`: what `buf lint` reads, as it cannot fetch google.rpc."""
    protoc_run(f"--descriptor_set_out={out}", "--include_imports", "--include_source_info")


if __name__ == "__main__":
    generate(ROOT)
