"""Which imported modules a worker reports."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from toolcelld.worker.loading.imports import ImportedFiles


@pytest.fixture(autouse=True)
def _restored_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "modules", sys.modules.copy())


def add_module(project: Path, name: str) -> None:
    path = project / f"{name}.py"
    path.touch()
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module


def reported(imported: ImportedFiles) -> list[str]:
    return [path for files in imported.new_since(0) for path in files]


def test_modules_are_reported_once_in_the_order_of_their_imports(tmp_path: Path) -> None:
    add_module(tmp_path, "zygotes_own")
    imported = ImportedFiles(str(tmp_path), after="zygotes_own")
    for name in ("first", "second"):
        add_module(tmp_path, name)
    assert reported(imported) == ["first.py", "second.py"]
    add_module(tmp_path, "third")
    assert reported(imported) == ["third.py"]


def test_a_module_that_takes_the_place_of_one_of_the_zygote_is_reported(tmp_path: Path) -> None:
    add_module(tmp_path, "earlier")
    add_module(tmp_path, "zygotes_own")
    imported = ImportedFiles(str(tmp_path), after="zygotes_own")
    del sys.modules["earlier"]
    add_module(tmp_path, "earlier")
    assert reported(imported) == ["earlier.py"]


def test_without_the_last_module_of_the_zygote_all_are_reported(tmp_path: Path) -> None:
    for name in ("earlier", "zygotes_own", "later"):
        add_module(tmp_path, name)
    imported = ImportedFiles(str(tmp_path), after="zygotes_own")
    del sys.modules["zygotes_own"]
    assert reported(imported) == ["earlier.py", "later.py"]


def test_a_key_that_is_no_name_ends_nothing(tmp_path: Path) -> None:
    add_module(tmp_path, "zygotes_own")
    imported = ImportedFiles(str(tmp_path), after="zygotes_own")
    sys.modules[3] = None  # type: ignore[index,assignment]  # a tool may put anything there
    add_module(tmp_path, "later")
    assert reported(imported) == ["later.py"]
