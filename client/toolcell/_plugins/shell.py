"""The strategy `shell`: one program, started with a list of arguments. There is no shell.

The template is split by the rules of a shell's quoting when the file is loaded, and its placeholders are replaced in
each argument for itself. What a shell would do beyond quoting is a load error, because it would not happen:

    grep {{pattern}} src | head     the operator '|'; run a script instead
    cat {{file}} || true            the operator '||'; `allowedExitCodes` says which codes are no failure
    echo $HOME                      the variable '$HOME'
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from toolcell import ToolContext, ToolError
from toolcell._plugins.models import ShellHandler
from toolcell._plugins.strategy import Strategy
from toolcell._plugins.values import FieldError, checked, fill, names_of, schema_of, text_of

_OPERATOR = re.compile(r"\d*(?:>>|>\||>&|<<<|<<|<&|<>|>|<)\d*|\|\||\|&|\||&&|&>|&|;;|;|[()]|\n|`")
_EXPANSION = re.compile(r"`|\$\(+|\$\{\w*\}?|\$\w+|\$[@*#?$!-]", re.ASCII)
_METACHARACTERS = re.compile(r"[;|&`$()<>\n\\]")
_SHELLS = frozenset({"ash", "bash", "busybox", "csh", "dash", "fish", "ksh", "mksh", "sh", "tcsh", "zsh"})
_SHELL_COMMAND = re.compile(r"-[A-Za-z]*c[A-Za-z]*|--command")


def make(handler: ShellHandler, properties: Mapping[str, Any], root: str) -> Strategy:
    """Return what runs a tool of this handler.

    Args:
        properties: The properties of the tool's inputSchema.
        root: The directory of the project that the file belongs to; "" is the session's.

    Raises:
        FieldError: The command or the directory cannot be used.
    """
    argv = _split(handler.command, properties)
    if handler.cwd is not None and names_of("handler.cwd", handler.cwd, properties):
        raise FieldError("handler.cwd", "takes no parameters, because they would choose the directory")

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> str:
        values = checked(arguments, properties)
        _look_for_metacharacters(handler, argv, values, context)
        filled = _filled(argv, values, properties)
        result = await context.exec(*filled, cwd=_directory(handler.cwd, root, context))
        output = result.stdout
        if result.stderr:
            output += f"\n--- stderr ---\n{result.stderr}"
        if result.code not in handler.allowed_exit_codes:
            raise ToolError(f"Command failed with exit code {result.code}:\n{output}")
        return output

    return Strategy(execute, {"timeout": handler.timeout / 1000})


def _split(command: str, properties: Mapping[str, Any]) -> list[str]:
    """Return the arguments of a command, placeholders included."""
    field = "handler.command"
    names_of(field, command, properties)
    _check_operators(command)
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise FieldError(field, f"cannot be split into arguments: {error}") from None
    if not argv or not argv[0]:
        raise FieldError(field, "names no program")
    if names_of(field, argv[0], properties):
        raise FieldError(field, "begins with a parameter; write which program it is")
    if os.path.basename(argv[0]) in _SHELLS or os.path.basename(argv[0]) == "env":
        for option, code in pairwise(argv):
            if _SHELL_COMMAND.fullmatch(option) and names_of(field, code, properties):
                raise FieldError(
                    field,
                    f"{argv[0]} {option} would read the parameter as code; pass it as an argument: sh -c '… \"$1\"' sh {{{{name}}}}",
                )
    if "\0" in command:
        raise FieldError(field, "has a null byte")
    return argv


def _check_operators(command: str) -> None:
    """Raise `FieldError` for the first thing that only a shell would act on."""
    quote, position = "", 0
    while position < len(command):
        letter = command[position]
        if quote == "'":
            quote = "" if letter == "'" else quote
        elif letter == "\\":
            position += 1
        elif found := _EXPANSION.match(command, position):
            what = "command substitution" if found[0][:2] in ("`", "$(") else "variable"
            raise FieldError(
                "handler.command", f"has the {what} {found[0]!r}, and no shell reads it; {_INSTEAD}"
            )
        elif quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif (found := _OPERATOR.match(command, position)) and not _is_number_within(command, position):
            raise FieldError(
                "handler.command", f"has the shell operator {found[0]!r}, and no shell reads it; {_INSTEAD}"
            )
        position += 1


_INSTEAD = "quote it if it is text, name the codes that are no failure in allowedExitCodes, or run a script"


def _is_number_within(command: str, position: int) -> bool:
    """Whether a digit is the end of a word, as in `a2>b`, so that it is no descriptor of a redirection."""
    return command[position].isdigit() and position > 0 and not command[position - 1].isspace()


def _look_for_metacharacters(
    handler: ShellHandler, argv: list[str], values: Mapping[str, Any], context: ToolContext
) -> None:
    """Warn of values that a shell would interpret; raise `ToolError` with `strict`."""
    template = "\0".join(argv)
    for name, value in values.items():
        if f"{{{{{name}}}}}" not in template:
            continue
        if found := sorted(set(_METACHARACTERS.findall(text_of(value)))):
            what = f"Parameter {name} has the shell metacharacters {' '.join(map(repr, found))}"
            if handler.strict:
                raise ToolError(f"{what}, which this tool refuses.")
            context.log.warning("%s; they are passed on as text.", what)


def _filled(argv: list[str], values: Mapping[str, Any], properties: Mapping[str, Any]) -> list[str]:
    """Return the arguments with their values; one whose parameter is absent is left out."""
    texts = {name: text_of(value) for name, value in values.items()}
    filled: list[str] = []
    options_end = False
    for template in argv:
        try:
            argument = fill(template, texts)
        except KeyError:
            continue
        if argument.startswith("-") and not template.startswith("-") and not options_end:
            _check_option(argv[0], template, values, properties)
        options_end = options_end or template == "--"
        filled.append(argument)
    return filled


def _check_option(
    program: str, template: str, values: Mapping[str, Any], properties: Mapping[str, Any]
) -> None:
    """Refuse a value at the beginning of an argument that the program would read as an option."""
    name = template[2:].partition("}}")[0]
    if isinstance(values[name], str) and values[name] not in schema_of(properties, name).get("enum", ()):
        raise ToolError(
            f"Parameter {name} begins with '-', which {program} would read as an option. "
            f"To allow it, the tool's file has to put -- in front of {template}, or list the value in an enum."
        )


def _directory(cwd: str | None, root: str, context: ToolContext) -> str:
    """Return the directory that the program starts in. Raises `ToolError` for one outside of the project."""
    if cwd is None:
        return os.fspath(context.directory)
    project = os.path.realpath(root or context.worktree)
    directory = os.path.realpath(os.path.join(project, cwd))
    if os.path.commonpath([project, directory]) != project:
        raise ToolError(f"The directory {cwd} of this tool is outside of the project {project}.")
    return directory
