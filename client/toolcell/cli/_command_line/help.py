"""What `--help` looks like: commands in sections, examples with each, and the options of all commands apart."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from toolcell.cli._ui.exit_codes import Exit
from toolcell.cli._ui.prose import GAP, wrapped

USAGE_ERROR: Final[Any] = typer.BadParameter.__bases__[0]
"""What typer raises for a wrong command line; it has no public name, and its place differs between versions."""

NAME_COLUMNS_MAX: Final = 30
"""A longer name of an option has its description on the lines below."""

EXAMPLES: Final[Mapping[str, Sequence[str]]] = {
    "call": (
        "toolcell call word_count text='one two two'",
        "toolcell call ./lint.py path=src --timeout 30s",
        "toolcell call order --args @order.json --json",
        "toolcell call counter --session a",
    ),
    "tools": ("toolcell tools", "toolcell tools word_count"),
    "output": ("toolcell output 3f2a", "toolcell output 3f2a --lines 100:200"),
    "new": ("toolcell new python", "toolcell new json git", "toolcell new typescript"),
    "init": ("toolcell init", "toolcell init word_count"),
    "prepare": (
        "toolcell prepare",
        "toolcell prepare ~/src/project --json",
        "toolcell prepare --remove-unused",
    ),
    "check": ("toolcell check", "toolcell check ./lint.py --json"),
    "dev": ("toolcell dev", "toolcell dev word_count text='one two two'", "toolcell dev ./lint.py path=src"),
    "test": ("toolcell test", "toolcell test .toolcell/tools/test_lint.py", "toolcell test ./lint.py --json"),
    "status": ("toolcell status", "toolcell status --json"),
    "stop": ("toolcell stop",),
    "backup": ("toolcell backup toolcell.tar", "toolcell backup toolcell.tar --force --json"),
    "restore": ("toolcell restore toolcell.tar", "toolcell restore toolcell.tar --force"),
    "calls": (
        "toolcell calls",
        "toolcell calls 8c1d",
        "toolcell calls --failed --since 1h",
        "toolcell calls --tool crawl -f",
    ),
    "events": ("toolcell events --since 1d", "toolcell events --type worker.dead", "toolcell events -f"),
    "audit": ("toolcell audit", "toolcell audit --since 7d --json"),
    "logs": ("toolcell logs --follow", "toolcell logs word_count -n 20", "toolcell logs --since 10m"),
    "sessions": ("toolcell sessions", "toolcell sessions 5b77"),
    "ps": ("toolcell ps", "toolcell ps --json"),
    "top": ("toolcell top", "toolcell top --list tools --sort failed", "toolcell top --once"),
    "abort": ("toolcell abort 8c1d", 'toolcell abort --tool crawl --reason "the site is down"'),
    "disable": ('toolcell disable crawl --reason "the site is down"',),
    "enable": ('toolcell enable crawl --reason "the site is back"',),
    "reload": ("toolcell reload",),
    "restart": ("toolcell restart", "toolcell restart word_count"),
    "quarantine": ('toolcell quarantine crawl --reason "it fills the disk"',),
    "release": ('toolcell release word_count --reason "mended"',),
    "drain": ('toolcell drain --reason "the host restarts at nine"', "toolcell drain --off"),
    "log-level": ("toolcell log-level debug --for 10m",),
    "trust": (
        "toolcell trust --show",
        "toolcell trust",
        "toolcell trust ~/src/project --digest",
        "toolcell trust --server git",
    ),
    "explain": (
        "toolcell explain fetch",
        "toolcell explain fetch api.example.com",
        "toolcell explain lint ~/.ssh",
    ),
    "doctor": ("toolcell doctor", "toolcell doctor --json"),
    "config": ("toolcell config show", "toolcell config set tool.crawl.memory 1GiB"),
    "config show": ("toolcell config show", "toolcell config show --json"),
    "config set": (
        "toolcell config set tool.crawl.memory 1GiB",
        "toolcell config set tool.crawl.env '[\"LANG\"]'",
    ),
    "config check": ("toolcell config check", "toolcell config check ./toolcell.toml"),
    "mcp": ("toolcell mcp", "toolcell mcp --http 8931", "toolcell mcp install claude"),
    "mcp install": ("toolcell mcp install claude", "toolcell mcp install vscode --project --write"),
    "mcp adopt": ("toolcell mcp adopt", "toolcell mcp adopt claude cursor --yes"),
    "mcp return": ("toolcell mcp return", "toolcell mcp return claude"),
    "mcp update": ("toolcell mcp update git 2026.11.1",),
    "bridge": ("toolcell bridge",),
    "opencode": ("toolcell opencode install",),
    "opencode install": ("toolcell opencode install", "toolcell opencode install --project"),
    "opencode path": ("toolcell opencode path",),
    "http": ("toolcell http", "toolcell http 8931 --token-env TOKEN", "toolcell http ./http.sock"),
    "ui": ("toolcell ui", "toolcell ui 9000 --operate"),
    "serve": (
        "toolcell serve",
        "toolcell serve --config ./toolcell.toml --idle-exit 10m",
        "toolcell serve --listen 10.0.0.5:7443",
    ),
    "join": ("toolcell join build-3.example:7443 CODE",),
    "cluster": ("toolcell cluster nodes",),
    "cluster serve": ("toolcell cluster serve placement.toml --invite alice",),
    "cluster up": ("toolcell cluster up placement.toml --invite alice",),
    "cluster down": ("toolcell cluster down placement.toml",),
    "cluster join": ("toolcell cluster join head.example:7443 CODE",),
    "cluster status": ("toolcell cluster status", "toolcell cluster status --json"),
    "cluster nodes": ("toolcell cluster nodes", "toolcell cluster nodes --json"),
    "cluster drain": (
        'toolcell cluster drain build-3 --reason "a new kernel"',
        "toolcell cluster drain build-3 --off",
    ),
    "service": ("toolcell service install",),
    "service install": ("toolcell service install", "toolcell service install --user ada"),
    "service uninstall": ("toolcell service uninstall",),
    "service status": ("toolcell service status", "toolcell service status --json"),
    "service logs": ("toolcell service logs", "toolcell service logs -f"),
    "completion": (
        'eval "$(toolcell completion bash)"',
        "toolcell completion fish | source",
    ),
    "version": ("toolcell version", "toolcell version --json"),
}
"""By the words after `toolcell`; each is a line that can be typed."""

EXIT_CODES: Final[Mapping[Exit, str]] = {
    Exit.OK: "The tool succeeded, or there is nothing to report.",
    Exit.FAILED: "The tool failed, or something was found.",
    Exit.USAGE: "The command line or the arguments of the tool are wrong.",
    Exit.REFUSED: "The call was refused, or a question of the tool was denied.",
    Exit.CRASHED: "The worker crashed.",
    Exit.LIMIT_EXCEEDED: "The call exceeded a limit.",
    Exit.UNAVAILABLE: "No daemon runs.",
    Exit.INTERNAL: "Toolcell itself failed.",
    Exit.OUTPUT: "The output could not be written.",
    Exit.TIMED_OUT: "The call took too long.",
    Exit.ABORTED: "The call was aborted.",
}

COMMON_OPTIONS: Final = frozenset({"directory", "socket", "as_json", "quiet", "help"})
"""The parameters that every command has."""


def summary(command: Any) -> str:
    """Return the first paragraph of a command's help, in one line."""
    return " ".join(inspect.cleandoc(command.help or "").split("\n\n", 1)[0].split())


def _write_options(command: Any, context: Any, formatter: Any) -> None:
    sections: dict[str, list[tuple[str, str]]] = {
        "Arguments": [],
        "Options": [],
        "Options of every command": [],
    }
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None:
            continue
        if parameter.param_type_name == "argument":
            sections["Arguments"].append(record)
        else:
            sections["Options of every command" if parameter.name in COMMON_OPTIONS else "Options"].append(
                record
            )
    for heading, records in sections.items():
        if records:
            with formatter.section(heading):
                _write_list(formatter, records)


def _write_list(formatter: Any, records: Sequence[tuple[str, str]]) -> None:
    """Write names with their descriptions, as `write_dl` does, but broken at spaces only: names have hyphens."""
    indent = " " * formatter.current_indent
    column = min(max(len(name) for name, _ in records), NAME_COLUMNS_MAX) + GAP
    for name, text in records:
        first, *rest = wrapped(text, formatter.width - len(indent) - column)
        if len(name) + GAP > column:
            formatter.write(f"{indent}{name}\n")
            name = ""
        formatter.write(f"{indent}{name.ljust(column)}{first}\n")
        for line in rest:
            formatter.write(f"{indent}{' ' * column}{line}\n")


def _write_examples(context: Any, formatter: Any) -> None:
    examples = EXAMPLES.get(context.command_path.partition(" ")[2], ())
    if examples:
        with formatter.section("Examples"):
            for example in examples:
                formatter.write(f"  {example}\n")


class _Located:
    """Names the command in every usage error, which an option without a value does not."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        typers: Any = super()
        try:
            return typers.parse_args(ctx, args)
        except USAGE_ERROR as error:
            error.ctx = error.ctx or ctx
            raise


class Command(_Located, TyperCommand):
    """A command; its help ends with examples."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_options(self, ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _write_examples(ctx, formatter)


class Commands(_Located, TyperGroup):
    """Commands below the headings of their sections."""

    def sections(self) -> Mapping[str, Sequence[str]]:
        """Return the names of the commands that are shown, by heading; those below a command are one section."""
        found: dict[str, list[str]] = {}
        for name, command in self.commands.items():
            if not command.hidden:
                found.setdefault(getattr(command, "rich_help_panel", None) or "Commands", []).append(name)
        return found

    def format_options(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, self.commands))
        for heading, names in self.sections().items():
            with formatter.section(heading):
                _write_list(formatter, [(name.ljust(width), summary(self.commands[name])) for name in names])
        _write_options(self, ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _write_examples(ctx, formatter)
        if ctx.parent is None:
            with formatter.section("Exit codes"):
                _write_list(formatter, [(str(code.value), text) for code, text in EXIT_CODES.items()])
