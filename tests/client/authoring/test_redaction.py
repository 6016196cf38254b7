"""What the model reads of an exception that was not meant for it."""

import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from toolcell import ToolError
from toolcell._results.exception_text import describe_exception, redacted

ROOTS = ["/home/ada/project", "/home/ada"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("No such file: '/home/ada/project/src/a.py'", "No such file: 'src/a.py'"),
        ("No such file: '/home/ada/secret/a.py'", "No such file: 'secret/a.py'"),
        ("No such file: '/opt/my data/a b.txt'", "No such file: '…/a b.txt'"),
        ("/usr/lib/python3/x.py:3: bad", "…/x.py:3: bad"),
        ("stderr:/etc/ssl/key.pem", "stderr:…/key.pem"),
        ("in /home/ada/project itself", "in . itself"),
        ("/home/ada/projects/x is another", "projects/x is another"),
        ("file:///etc/passwd", "file:…/passwd"),
        ("https://example.org/a/b?c=/d is down", "https://example.org/a/b?c=/d is down"),
        ("1/2 and a/b are no paths, nor is / alone", "1/2 and a/b are no paths, nor is / alone"),
        ("/tmp", "/tmp"),
    ],
)
def test_paths_are_shortened_and_the_rest_stays(text: str, shown: str) -> None:
    assert redacted(text, ROOTS) == shown


def test_class_and_message_are_what_the_model_reads() -> None:
    assert describe_exception(ValueError("\n  first\n\n  second \n")) == "ValueError: first\n  second"
    assert describe_exception(ValueError()) == "ValueError"
    assert describe_exception(KeyError("x")) == "KeyError: 'x'"


def test_an_exception_without_a_message_has_the_line_that_raised_it() -> None:
    def check(found: int) -> None:
        assert not found

    with pytest.raises(AssertionError) as caught:
        check(3)
    caught.value.args = ()
    line = check.__code__.co_firstlineno + 1
    assert (
        describe_exception(caught.value)
        == f"AssertionError, raised in line {line} of test_redaction.py: assert not found"
    )
    with pytest.raises(StopIteration) as stopped:
        next(iter(()))
    assert "next(iter(()))" in describe_exception(stopped.value)


def test_the_line_is_one_of_the_tool_where_a_package_raised_it() -> None:
    names: dict[str, Any] = {}
    exec(compile("def fails():\n    raise ValueError", "/lib/site-packages/package.py", "exec"), names)
    with pytest.raises(ValueError) as caught:  # it has no message
        names["fails"]()
    assert describe_exception(caught.value).endswith('of test_redaction.py: names["fails"]()')


@pytest.mark.parametrize("failure", [OSError, RuntimeError])
def test_the_line_that_raised_is_not_read_by_code_that_fails_or_forges_it(failure: type[Exception]) -> None:
    class Loader:
        def get_source(self, name: str) -> str:
            raise failure(name)

    names = {"__name__": "tool", "__loader__": Loader(), "__spec__": None}
    with pytest.raises(ValueError) as caught:  # it has no message
        exec(compile("raise ValueError", f"/nowhere/{failure.__name__}.py", "exec"), names)
    assert describe_exception(caught.value).startswith("ValueError")
    assert "/nowhere" not in describe_exception(caught.value)


def test_a_line_has_at_most_512_characters_and_a_description_2000() -> None:
    description = describe_exception(ValueError("x" * 10_000_000))
    assert len(description) == 512
    assert description.endswith("…")
    many = describe_exception(ValueError("\n".join(["y" * 600] * 30)))
    assert (len(many), many[-1]) == (2000, "…")
    lines = describe_exception(ValueError("\n".join(map(str, range(30))))).splitlines()
    assert lines == ["ValueError: 0", *map(str, range(1, 20)), "…"]


class User(BaseModel):
    name: str
    age: int


def test_a_failed_validation_names_every_field_without_the_addresses_of_pages() -> None:
    with pytest.raises(ValidationError) as caught:
        User.model_validate({"age": "x"})
    first, *rest = describe_exception(caught.value).splitlines()
    assert first == "ValidationError: 2 validation errors for User"
    assert [line for line in rest if not line.startswith(" ")] == ["name", "age"]
    assert "errors.pydantic.dev" not in "\n".join(rest)


def test_notes_are_told_of_every_kind_of_exception() -> None:
    group = ExceptionGroup("several", [ValueError("one"), TypeError("two")])
    for error, described in (
        (ValueError("first"), "ValueError: first"),
        (ToolError("said"), "said"),
        (group, "ValueError: one\nTypeError: two"),
    ):
        error.add_note("see /home/ada/project/how.md\nand /etc/passwd")
        error.add_note("x" * 10_000_000)
        error.__notes__.append(object())  # type: ignore[arg-type]  # as an assignment can
        text = describe_exception(error, ROOTS)
        assert text.startswith(f"{described}\nsee how.md\nand …/passwd\nxxx")
        assert len(text) <= 2000
    odd = ValueError("first")
    odd.__notes__ = "no list"  # type: ignore[assignment]
    assert describe_exception(odd) == "ValueError: first"


def test_an_explicit_cause_is_told_unless_the_message_has_it() -> None:
    def raised(error: BaseException, cause: BaseException | None) -> BaseException:
        error.__cause__ = cause
        return error

    low = ConnectionError("no route to /home/ada/project/sock")
    chain = raised(ValueError("second"), raised(OSError("first"), low))
    told = ["ValueError: second", "caused by OSError: first", "caused by ConnectionError: no route to sock"]
    assert describe_exception(chain, ROOTS).splitlines() == told
    assert (
        describe_exception(raised(ValueError("failed: first"), OSError("first")))
        == "ValueError: failed: first"
    )
    implicit = ValueError("second")
    implicit.__context__ = OSError("first")
    assert describe_exception(implicit) == "ValueError: second"
    circle = ValueError("round")
    assert describe_exception(raised(circle, circle)) == "ValueError: round"
    long = ValueError("0")
    for number in range(1, 10):
        long = raised(ValueError(f"{number}{number}"), long)  # type: ignore[assignment]
    assert len(describe_exception(long).splitlines()) == 4


def test_a_tool_error_arrives_unchanged() -> None:
    message = "See /home/ada/project/notes.txt\nsecond line " + "x" * 1000
    assert describe_exception(ToolError(message), ROOTS) == message


def test_an_exception_whose_text_raises_is_still_described() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert describe_exception(Mute()).endswith("Mute: (its message cannot be shown)")


def test_a_group_is_described_by_its_first_exceptions() -> None:
    group = ExceptionGroup("outer", [ExceptionGroup("inner", [ValueError("cause")]), TypeError("other")])
    assert describe_exception(group) == "ValueError: cause\nTypeError: other"
    many = describe_exception(ExceptionGroup("many", [ValueError(str(n)) for n in range(100)]))
    assert many.splitlines() == [*(f"ValueError: {n}" for n in range(5)), "and more"]
    deep = ValueError("deep")
    for _ in range(10_000):
        deep = ExceptionGroup("one more", [deep])  # type: ignore[assignment]  # a group is no ValueError
    assert describe_exception(deep) == "ValueError: deep"


@pytest.mark.parametrize(
    ("stdout", "stderr", "told"),
    [
        (
            None,
            None,
            [
                "What it printed is in the log of the call; with stderr=subprocess.PIPE its last lines are told here."
            ],
        ),
        ("", "", []),
        (b"out\n", b"\nbad: /home/ada/project/a.py\nx\xff\n", ["bad: a.py", "x\ufffd"]),
        ("first\nlast\n", "", ["first", "last"]),
        ("", "".join(f"{n}{'y' * 300}\n" for n in range(100)), [f"{n}{'y' * 198}" for n in range(95, 100)]),
        (3, object(), []),
    ],
)
def test_a_failed_program_is_described_with_what_it_printed_last(
    stdout: Any, stderr: Any, told: list[str]
) -> None:
    error = subprocess.CalledProcessError(3, "x", stdout, stderr)
    first = "CalledProcessError: Command 'x' returned non-zero exit status 3."
    assert describe_exception(error, ROOTS).splitlines() == [first, *told]


def test_an_exit_is_no_result() -> None:
    why = "; a tool ends with its result: return it"
    assert describe_exception(SystemExit(0)) == f"the tool called sys.exit(0){why}"
    assert describe_exception(SystemExit()) == f"the tool called sys.exit(){why}"
    assert describe_exception(SystemExit("no licence")) == f"the tool called sys.exit('no licence'){why}"
    assert describe_exception(SystemExit(object())) == f"the tool called sys.exit(){why}"
    assert f"x…){why}" in describe_exception(SystemExit("x" * 600))


@given(st.text(), st.lists(st.from_regex(r"/[a-z]{1,5}(/[a-z]{1,5}){0,3}", fullmatch=True)))
def test_any_text_is_described_in_bounds(text: str, roots: list[str]) -> None:
    assert len(describe_exception(ValueError(text), roots)) <= 2000


@given(
    st.lists(st.from_regex(r"[a-z]{2,8}", fullmatch=True), min_size=2, max_size=5),
    st.sampled_from("'\" (:,="),
)
def test_no_directory_of_an_absolute_path_is_shown(parts: list[str], before: str) -> None:
    path = "/" + "/".join(["hidden", *parts])
    assert "hidden" not in redacted(f"x{before}{path}")
