"""The strategy `shell`: a value is one argument, or part of one, whatever it holds."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.client.plugins.kit import ARGUMENTS, call, entry, load, problems, tool

from toolcell import ToolError
from toolcell.testing import FakeContext

pytestmark = pytest.mark.anyio

SHOW = f"{sys.executable} -I -S -c 'import json, sys; print(json.dumps(sys.argv[1:]))'"


def command(text: str, **others: object) -> dict[str, object]:
    return {"type": "shell", "command": text, **others}


async def test_no_hostile_value_becomes_anything_but_text_in_its_argument(tmp_path: Path) -> None:
    assert len(ARGUMENTS) >= 100
    names = [
        f"v{number}" for number in range(10)
    ]  # at once, as a start of the program takes longer than the rest
    template = " ".join(f"'{{{{{name}}}}}' --part={{{{{name}}}}} 'a {{{{{name}}}}} b'" for name in names)
    show = tool(command(f"{SHOW} first {template} last"), *names)
    values = [value for value in ARGUMENTS if not value.startswith("-")]
    for start in range(0, len(values), len(names)):
        some = dict(zip(names, values[start:], strict=False))
        printed = await call(show, FakeContext(directory=tmp_path), **some)
        parts = [part for value in some.values() for part in (value, f"--part={value}", f"a {value} b")]
        assert json.loads(printed) == ["first", *parts, "last"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", ["-rf", "--output=/etc/passwd", "-", "--", "-e touch escaped"])
async def test_a_value_is_no_option_of_the_program(tmp_path: Path, value: str) -> None:
    context = FakeContext(directory=tmp_path)
    with pytest.raises(ToolError, match="Parameter value begins with '-'"):
        await call(tool(command(f"{SHOW} {{{{value}}}}"), "value"), context, value=value)
    after = tool(command(f"{SHOW} -- {{{{value}}}}"), "value")
    assert json.loads(await call(after, context, value=value)) == ["--", value]
    part = tool(command(f"{SHOW} --x={{{{value}}}}"), "value")
    assert json.loads(await call(part, context, value=value)) == [f"--x={value}"]


async def test_a_value_that_the_schema_lists_and_a_number_may_begin_with_a_dash(tmp_path: Path) -> None:
    properties = {"mode": {"type": "string", "enum": ["--stat", "--short"]}, "count": {"type": "integer"}}
    (show,) = load(entry(command(f"{SHOW} {{{{mode}}}} {{{{count}}}}"), properties)).tools
    printed = await call(show, FakeContext(directory=tmp_path), mode="--stat", count=-3)
    assert json.loads(printed) == ["--stat", "-3"]


@pytest.mark.parametrize("value", ["\0", "a\0b", ["a\0b"], {"a\0": 1}])
async def test_a_null_byte_is_refused(tmp_path: Path, value: object) -> None:
    (show,) = load(entry(command(f"{SHOW} {{{{value}}}}"), {"value": {}})).tools
    with pytest.raises(ToolError, match="Parameter value has a null byte"):
        await call(show, FakeContext(directory=tmp_path), value=value)


async def test_a_value_has_at_most_ten_thousand_characters(tmp_path: Path) -> None:
    show = tool(command(f"{SHOW} {{{{value}}}}"), "value")
    with pytest.raises(ToolError, match="Parameter value has 10001 characters, and at most 10000 are taken"):
        await call(show, FakeContext(directory=tmp_path), value="a" * 10_001)


async def test_metacharacters_are_a_warning_and_refused_when_the_tool_is_strict(tmp_path: Path) -> None:
    context = FakeContext(directory=tmp_path)
    value = "a; b `c`"
    assert json.loads(await call(tool(command(f"{SHOW} {{{{value}}}}"), "value"), context, value=value)) == [
        value
    ]
    (logged,) = context.logs
    assert logged.level == "warning"
    assert logged.text == "Parameter value has the shell metacharacters ';' '`'; they are passed on as text."
    strict = tool(command(f"{SHOW} {{{{value}}}}", strict=True), "value")
    with pytest.raises(ToolError, match="metacharacters ';' '`', which this tool refuses"):
        await call(strict, context, value=value)


async def test_an_argument_whose_parameter_is_absent_is_left_out(tmp_path: Path) -> None:
    show = tool(command(f"{SHOW} a {{{{x}}}} --y={{{{y}}}} '{{{{x}}}} and {{{{y}}}}' b"), "x", "y")
    context = FakeContext(directory=tmp_path)
    assert json.loads(await call(show, context)) == ["a", "b"]
    assert json.loads(await call(show, context, y="")) == ["a", "--y=", "b"]


async def test_other_values_than_text_are_compact_json_in_one_argument(tmp_path: Path) -> None:
    (show,) = load(entry(command(f"{SHOW} {{{{value}}}}"), {"value": {}})).tools
    for value, text in (
        (True, "true"),
        (1.5, "1.5"),
        (["a b", "é"], '["a b","é"]'),
        ({"a": None}, '{"a":null}'),
    ):
        assert json.loads(await call(show, FakeContext(directory=tmp_path), value=value)) == [text]


OPERATORS = {
    "grep -rn '{{a}}' . || true": "the shell operator '||'",
    "ls | head": "the shell operator '|'",
    "ls; ls": "the shell operator ';'",
    "ls && ls": "the shell operator '&&'",
    "sleep 1 &": "the shell operator '&'",
    "ls > out": "the shell operator '>'",
    "ls >> out": "the shell operator '>>'",
    "ls 2>&1": "the shell operator '2>&1'",
    "sort < in": "the shell operator '<'",
    "cat <<EOF": "the shell operator '<<'",
    "(ls)": "the shell operator '('",
    "ls\nls": r"the shell operator '\n'",
    "echo `id`": "the command substitution '`'",
    "echo $(id)": "the command substitution '$('",
    'echo "$(id)"': "the command substitution '$('",
    'echo "`id`"': "the command substitution '`'",
    "echo $HOME": "the variable '$HOME'",
    'echo "${HOME}"': "the variable '${HOME}'",
    "echo $1": "the variable '$1'",
    "'' x": "names no program",
    " ": "names no program",
    "{{a}} x": "begins with a parameter",
    "x{{a}} x": "begins with a parameter",
    "echo 'a": "cannot be split into arguments: No closing quotation",
    "echo {{b}}": "{{b}} is no property of inputSchema; there are: a",
    "echo {{ a }}": "{{ a }} is not replaced",
    "sh -c 'grep {{a}} x'": "sh -c would read the parameter as code",
    "/bin/bash -ec {{a}}": "/bin/bash -ec would read the parameter as code",
}


@pytest.mark.parametrize(("text", "message"), OPERATORS.items(), ids=range(len(OPERATORS)))
def test_what_only_a_shell_would_do_is_a_load_error_that_names_it(text: str, message: str) -> None:
    (problem,) = problems(entry(command(text), {"a": {"type": "string"}}))
    assert problem.startswith("tools[0] (it): handler.command: ")
    assert message in problem


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        (r"x '|' ';' \| \; \$HOME '$HOME' '`' \`", ["|", ";", "|", ";", "$HOME", "$HOME", "`", "`"]),
        (r'x "a|b" "a$" cost\$', ["a|b", "a$", "cost$"]),
        ("x --format '{{.Names}}' {{.ID}} a#b *", ["--format", "{{.Names}}", "{{.ID}}", "a#b", "*"]),
        ("sh -c 'echo \"$1\"' sh {{a}}", None),
        ("bash build.sh {{a}}", None),
    ],
)
async def test_what_is_quoted_is_text(tmp_path: Path, text: str, argv: list[str] | None) -> None:
    if argv is None:
        tool(command(text), "a")
        return
    show = tool(command(SHOW + text.removeprefix("x")), "a")
    assert json.loads(await call(show, FakeContext(directory=tmp_path))) == argv


async def test_what_goes_to_stderr_follows_a_heading(tmp_path: Path) -> None:
    both = tool(command("sh -c 'echo out; echo err >&2'"))
    assert await call(both, FakeContext(directory=tmp_path)) == "out\n\n--- stderr ---\nerr\n"


async def test_another_exit_code_is_an_error_unless_it_is_listed(tmp_path: Path) -> None:
    context = FakeContext(directory=tmp_path)
    with pytest.raises(ToolError) as raised:
        await call(tool(command("sh -c 'echo out; exit 3'")), context)
    assert str(raised.value) == "Command failed with exit code 3:\nout\n"
    listed = tool(command("sh -c 'echo out; exit 3'", allowedExitCodes=[0, 3]))
    assert await call(listed, context) == "out\n"


async def test_a_program_that_there_is_not_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="nowhere-to-be-found could not be started: there is no such program"):
        await call(tool(command("nowhere-to-be-found")), FakeContext(directory=tmp_path))


async def test_the_directory_is_inside_the_project(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "sub").mkdir(parents=True)
    (tmp_path / "project-2").mkdir()
    (project / "link").symlink_to(tmp_path / "project-2")
    context = FakeContext(directory=project)
    assert await call(tool(command("pwd")), context) == f"{project}\n"
    assert await call(tool(command("pwd", cwd="sub")), context) == f"{project}/sub\n"
    for outside in ("..", "../project-2", "link", "/", f"{project}-2", "sub/../.."):
        with pytest.raises(ToolError, match="is outside of the project"):
            await call(tool(command("pwd", cwd=outside)), context)


async def test_a_project_s_file_starts_from_its_own_project(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    (inner / "sub").mkdir(parents=True)
    of_inner = tool(command("pwd", cwd="sub"), directory=str(inner / ".toolcell" / "plugins"))
    context = FakeContext(directory=inner, worktree=tmp_path)
    assert await call(of_inner, context) == f"{inner}/sub\n"


def test_the_directory_takes_no_parameter() -> None:
    (problem,) = problems(entry(command("pwd", cwd="{{a}}"), {"a": {"type": "string"}}))
    assert "handler.cwd: takes no parameters" in problem


def test_the_time_out_is_that_of_the_call() -> None:
    assert tool(command("true")).options["timeout"] == 30
    assert tool(command("true", timeout=1500)).options["timeout"] == 1.5
