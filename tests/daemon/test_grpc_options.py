"""The options of gRPC's library, which takes one that it does not know without a word."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import toolcelld
import toolcelld_cluster

NAME = re.compile(r'\("(grpc\.[a-z0-9_.]+)", ')


def test_grpc_knows_the_name_of_each_option() -> None:
    found = importlib.util.find_spec("grpc._cython.cygrpc")
    assert found is not None
    library = Path(str(found.origin)).read_bytes()
    sources = [
        path for package in (toolcelld, toolcelld_cluster) for path in Path(package.__path__[0]).rglob("*.py")
    ]
    names = {name for path in sources for name in NAME.findall(path.read_text())}
    assert "grpc.keepalive_time_ms" in names
    assert [name for name in names if name.encode() not in library] == []
