"""What an interpreter is found to be, by reading alone."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from toolcelld.environments.interpreter import Interpreter, InterpreterError, environment_in, find

HOME = "/home/nobody-of-these-tests"
OWN = os.path.realpath(sys.executable)
VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"


def base(root: Path, version: str = "3.12") -> Path:
    """A directory that looks like a base interpreter."""
    (root / "bin").mkdir(parents=True)
    (root / "lib" / f"python{version}").mkdir(parents=True)
    (root / "lib" / f"python{version}" / "os.py").touch()
    program = root / "bin" / f"python{version}"
    program.write_text("#!/bin/false\n")
    program.chmod(0o755)
    return program


def environment(prefix: Path, program: str, version: str = VERSION, home: str = "/nowhere") -> str:
    """An environment that links to a program."""
    (prefix / "bin").mkdir(parents=True)
    (prefix / "lib" / f"python{version}" / "site-packages").mkdir(parents=True)
    (prefix / "pyvenv.cfg").write_text(f"home = {home}\n")
    (prefix / "bin" / "python").symlink_to(program)
    return str(prefix / "bin" / "python")


def package(executable: str, name: str) -> None:
    next(Path(executable).parents[1].glob("lib/*/site-packages")).joinpath(f"{name}.dist-info").mkdir()


def test_an_environment_of_the_own_interpreter_fits(tmp_path: Path) -> None:
    executable = environment(tmp_path / ".venv", OWN)
    package(executable, "requests-2.0")
    found = find(executable, HOME)
    assert found.program == ""
    assert (found.executable, found.prefix, found.version) == (executable, str(tmp_path / ".venv"), VERSION)
    assert found.packages == (f"{tmp_path}/.venv/lib/python{VERSION}/site-packages",)
    assert environment_in(str(tmp_path)) == executable


@pytest.mark.parametrize("other", ["pydantic-0.1", "typing_extensions-1.0", "pydantic-core-0.2"])
def test_another_version_of_what_every_worker_has_loaded_does_not_fit(tmp_path: Path, other: str) -> None:
    executable = environment(tmp_path / ".venv", OWN)
    package(executable, other)
    assert find(executable, HOME).program == OWN


def test_packages_that_are_installed_change_the_interpreter(tmp_path: Path) -> None:
    executable = environment(tmp_path / ".venv", OWN)
    before = find(executable, HOME)
    os.utime(before.packages[0], ns=(1, 1))
    package(executable, "requests-2.0")
    assert find(executable, HOME) != before


def test_another_base_is_executed_and_readable_with_the_links_that_lead_to_it(tmp_path: Path) -> None:
    program = base(tmp_path / "cpython-3.12.4")
    alias = tmp_path / "cpython-3.12"
    alias.symlink_to("cpython-3.12.4")
    executable = environment(tmp_path / "p" / ".venv", f"{alias}/bin/python3.12", "3.12")
    found = find(executable, HOME)
    assert found == Interpreter(
        executable, str(tmp_path / "p" / ".venv"), found.packages, "3.12", str(program),
        (str(tmp_path / "p" / ".venv"), str(tmp_path / "cpython-3.12.4"), str(alias)), found.state,
    )  # fmt: skip


def test_home_of_an_environment_decides_nothing(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    base(secret)
    executable = environment(tmp_path / ".venv", OWN, home=f"{secret}/bin")
    assert not [place for place in find(executable, HOME).readable if place.startswith(str(secret))]


def test_a_copied_program_has_the_base_that_home_names_only_if_it_is_one(tmp_path: Path) -> None:
    program = base(tmp_path / "base")
    executable = environment(tmp_path / ".venv", "python3.12", "3.12", home=f"{tmp_path}/base/bin")
    (tmp_path / ".venv" / "bin" / "python3.12").write_text("a copy")
    found = find(executable, HOME)
    assert (found.program, found.readable[1:]) == (str(program), (f"{tmp_path}/base",))
    (tmp_path / ".venv" / "pyvenv.cfg").write_text(f"home = {tmp_path}/elsewhere\n")
    with pytest.raises(InterpreterError, match="no Python interpreter"):
        find(executable, HOME)


@pytest.mark.parametrize(
    "target", ["/etc/passwd", "/nowhere/bin/python3.12", "/", "../../../python", "python"]
)
def test_a_link_to_something_else_is_no_interpreter(tmp_path: Path, target: str) -> None:
    with pytest.raises(InterpreterError, match="no Python interpreter"):
        find(environment(tmp_path / ".venv", target), HOME)


def test_a_base_without_a_standard_library_is_refused(tmp_path: Path) -> None:
    program = base(tmp_path / "base")
    (tmp_path / "base" / "lib" / "python3.12" / "os.py").unlink()
    with pytest.raises(InterpreterError, match="no standard library"):
        find(environment(tmp_path / ".venv", str(program), "3.12"), HOME)


def test_a_base_that_others_can_write_is_refused(tmp_path: Path) -> None:
    program = base(tmp_path / "base")
    program.chmod(0o777)
    with pytest.raises(InterpreterError, match="can be written by all"):
        find(environment(tmp_path / ".venv", str(program), "3.12"), HOME)


def test_a_base_above_the_home_directory_is_refused(tmp_path: Path) -> None:
    program = base(tmp_path)
    with pytest.raises(InterpreterError, match="would have to be readable"):
        find(environment(tmp_path / "p" / ".venv", str(program), "3.12"), str(tmp_path / "home"))


def test_a_python_that_is_too_old_is_refused(tmp_path: Path) -> None:
    program = base(tmp_path / "base", "3.9")
    with pytest.raises(InterpreterError, match=r"Python 3\.9; tools need 3\.11"):
        find(environment(tmp_path / ".venv", str(program), "3.9"), HOME)


def test_the_hidden_environment_comes_first_and_a_directory_without_configuration_is_none(
    tmp_path: Path,
) -> None:
    assert environment_in(str(tmp_path)) is None
    visible = environment(tmp_path / "venv", OWN)
    assert environment_in(str(tmp_path)) == visible
    hidden = environment(tmp_path / ".venv", OWN)
    assert environment_in(str(tmp_path)) == hidden
    (tmp_path / ".venv" / "pyvenv.cfg").unlink()
    assert environment_in(str(tmp_path)) == visible
