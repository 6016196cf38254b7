"""What the model reads of an exception that was not meant for it."""

import re
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


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")

    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_the_causes_of_the_members_of_a_group_and_of_the_group_are_told() -> None:
    def raised(error: Exception, cause: BaseException) -> Exception:
        error.__cause__ = cause
        return error

    low = ConnectionError("no route to /home/ada/project/sock")
    one, other = raised(ValueError("one"), low), raised(TypeError("two"), KeyError("key"))
    inner = raised(ExceptionGroup("inner", [other]), OSError("disk"))
    inner.add_note("inside")
    group = raised(ExceptionGroup("outer", [one, inner, raised(ValueError("three"), low)]), EOFError("end"))
    assert describe_exception(group, ROOTS).splitlines() == [
        "ValueError: one",
        "caused by ConnectionError: no route to sock",
        "TypeError: two",
        "caused by KeyError: 'key'",
        "ValueError: three",
        "caused by EOFError: end",
        "inside",
        "caused by OSError: disk",
    ]
    of_group = raised(ValueError("first"), ExceptionGroup("two", [OSError("disk"), OSError("tape")]))
    assert describe_exception(of_group).splitlines() == [
        "ValueError: first",
        "caused by OSError: disk",
        "caused by OSError: tape",
    ]
    failed = subprocess.CalledProcessError(3, "x", stderr="bad\n")
    assert "bad" in describe_exception(ExceptionGroup("two", [failed, ValueError("x")])).splitlines()


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("1 +", ["  1 +", "     ^"]),
        ("ok = 1\nif ok\n    pass", ["  if ok", "       ^"]),
        ("  x = ) 1", ["  x = ) 1", "  ^"]),
        ("def f(:\n  pass", ["  def f(:", "        ^"]),
        ("print 'x'", ["  print 'x'", "  ^^^^^^^^^"]),
        ("return 1", []),
        ("x = '" + "y" * 300, []),
    ],
)
def test_a_mistake_in_code_that_a_tool_has_run_is_told_with_its_line_and_carets(
    code: str, told: list[str]
) -> None:
    with pytest.raises(SyntaxError) as caught:
        exec(code)
    first, *rest = describe_exception(caught.value).splitlines()
    assert re.fullmatch(r"(SyntaxError|IndentationError): .* \(<string>, line \d\)", first)
    assert rest == told
    in_group = describe_exception(ExceptionGroup("one", [caught.value])).splitlines()
    assert in_group == [first, *rest]


def test_a_mistake_that_a_tool_raises_itself_may_hold_anything() -> None:
    odd: tuple[Any, ...] = (
        (None, 1, 1, "x"),
        ("f", "a", "b", 3),
        ("f", 1, -5, "x = 1"),
        ("f", 1, 10**30, "x", 1, -1),
    )
    for details in odd:
        assert describe_exception(SyntaxError("odd", details)).startswith("SyntaxError: odd")


def test_an_exit_is_no_result() -> None:
    why = "; a tool ends with its result: return it"
    assert describe_exception(SystemExit(0)) == f"the tool called sys.exit(0){why}"
    assert describe_exception(SystemExit()) == f"the tool called sys.exit(){why}"
    assert describe_exception(SystemExit("no licence")) == f"the tool called sys.exit('no licence'){why}"
    assert describe_exception(SystemExit({"a": [1], "b": "/home/ada/project/x"}), ROOTS) == (
        f"the tool called sys.exit({{'a': [1], 'b': 'x'}}){why}"
    )
    assert describe_exception(SystemExit(object())).startswith("the tool called sys.exit(<object object at ")
    assert describe_exception(SystemExit(None)) == f"the tool called sys.exit(){why}"
    assert describe_exception(SystemExit(Mute())).startswith("the tool called sys.exit(<Mute instance at ")
    assert describe_exception(SystemExit(10**5000)) == f"the tool called sys.exit(a int){why}"
    for large in (["x" * 1000] * 1000, dict.fromkeys(range(1_000_000)), b"x" * 1_000_000, "\udc00"):
        assert len(describe_exception(SystemExit(large)).encode()) < 2000
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
