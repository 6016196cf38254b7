"""The types that `toolcell new typescript` writes, held against the real TypeScript compiler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Project
from tests.engines import NODE

MODULES = Path(sys.prefix) / "engines" / "node_modules"
OPTIONS = ("--noEmit", "--strict", "--target", "esnext", "--module", "preserve", "--pretty", "false")
RIGHT = """\
/// <reference path="./toolcell.d.ts" />
import { tool, ToolError } from "toolcell"
import { z } from "zod"

export const one = tool({
  description: "One",
  args: {
    text: { type: "string" },
    size: { type: "integer", default: 1 },
    kind: { enum: ["a", "b"] },
    tags: { type: "array", items: { type: "string" }, optional: true },
    zod: z.string().transform((it) => it.length),
    maybe: z.boolean().optional(),
  },
  async execute(args, context) {
    const text: string = args.text.toUpperCase()
    const size: number = args.size + args.zod
    const kind: "a" | "b" = args.kind
    const tags: string[] = args.tags ?? []
    const maybe: boolean = args.maybe ?? false
    context.abort.throwIfAborted()
    context.progress(1, 2, context.directory)
    if (size < 0) throw new ToolError("below zero", { details: { size } })
    return { output: [text, kind, maybe, ...tags].join(), title: context.sessionID }
  },
})
export default tool({ description: "Two", execute: () => "two" })
"""
WRONG = (
    ("args.text.toUpperCase()", "args.text + args.nothing", "nothing"),
    ("= args.size + args.zod", "= args.text", "'string' is not assignable to type 'number'"),
    ('"a" | "b" = args.kind', '"c" = args.kind', '"a"'),
    ("args.tags ?? []", "args.tags", "undefined"),
    ("context.abort.throwIfAborted()", "context.stop()", "stop"),
    ('description: "Two", ', "", "description"),
    ('{ type: "string" }', '{ type: "text" }', '"text"'),
    ('new ToolError("below zero"', "new ToolError(3", "number"),
)


def compiled(directory: Path, *files: str) -> subprocess.CompletedProcess[str]:
    words = [str(NODE), str(MODULES / "typescript" / "bin" / "tsc"), *OPTIONS, *files]
    return subprocess.run(words, cwd=directory, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
def test_the_example_and_each_kind_of_argument_have_the_types_that_the_tool_gets(project: Project) -> None:
    assert project.run("new", "typescript").code == 0
    done = compiled(project.tools, "hello.ts")
    assert (done.returncode, done.stdout) == (0, "")
    (project.directory / "node_modules").symlink_to(MODULES)
    (project.tools / "right.ts").write_text(RIGHT)
    done = compiled(project.tools, "right.ts")
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.slow
def test_what_is_wrong_is_an_error_of_the_compiler(project: Project) -> None:
    assert project.run("new", "typescript").code == 0
    (project.directory / "node_modules").symlink_to(MODULES)
    for number, (right, wrong, _) in enumerate(WRONG):
        assert right in RIGHT
        (project.tools / f"wrong{number}.ts").write_text(RIGHT.replace(right, wrong))
    told = compiled(project.tools, *(f"wrong{number}.ts" for number in range(len(WRONG)))).stdout
    for number, (_, wrong, named) in enumerate(WRONG):
        errors = [line for line in told.splitlines() if line.startswith(f"wrong{number}.ts(")]
        assert any(named in line for line in errors), (wrong, told)
