"""Schemas of every version of Zod and TypeBox that a project may have: described, filled in, transformed and refused.

The project has its own copy of a library, from npm, beside the one that Toolcell has with it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.daemons import RunningDaemon, renewed, running_daemon
from tests.engines import ENGINES, PACKAGES

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.sampled("of_engine")]


@pytest.fixture(scope="module", params=sorted(ENGINES))
def of_engine(request: pytest.FixtureRequest) -> Iterator[RunningDaemon]:
    """A daemon that has one engine."""
    with running_daemon(environment={"PATH": f"{ENGINES[request.param].parent}:/usr/bin:/bin"}) as daemon:
        yield daemon


@pytest.fixture
def daemon(of_engine: RunningDaemon) -> Iterator[RunningDaemon]:
    with renewed(of_engine):
        yield of_engine


ZOD: Final = """
import { z } from "IMPORT"
const args = {
  text: z.string().min(2).describe("what is measured").transform((it) => it.length),
  unit: z.enum(["m", "s"]).default("m").describe("which"),
  count: z.number().int().optional().describe("how many"),
  tags: z.array(z.string().describe("a tag")).default([]),
  place: z.object({ x: z.number().default(1).describe("from the left") }).optional(),
  either: z.union([z.string(), z.number()]).optional(),
  date: z.coerce.date().optional(),
}
const execute = async (args) => JSON.stringify(args)
export const fields = { description: "Fields", args, execute }
export const whole = { description: "Whole", parameters: z.object(args), execute }
"""
TYPEBOX: Final = """
import { Type } from "IMPORT"
const parameters = Type.Object({
  text: Type.String({ minLength: 2, description: "what is measured" }),
  unit: Type.Union([Type.Literal("m"), Type.Literal("s")], { default: "m", description: "which" }),
  count: Type.Optional(Type.Integer({ description: "how many" })),
  tags: Type.Optional(Type.Array(Type.String({ description: "a tag" }), { default: [] })),
  place: Type.Optional(Type.Object({ x: Type.Number({ default: 1, description: "from the left" }) })),
})
export const whole = { description: "Whole", parameters, execute: async (args) => JSON.stringify(args) }
"""
VERSIONS: Final = [
    ("", "zod"),
    ("", "zod/v4"),
    ("", "zod/v3"),
    ("zod-4.1", "zod"),
    ("zod-4.1", "zod/v3"),
    ("zod-3", "zod"),
]
"""The package of npm that the project has as its `zod`, if any, and what the file imports."""


def write(daemon: RunningDaemon, text: str) -> None:
    (daemon.project / ".toolcell" / "tools" / "it.ts").write_text(text)


def install(package: str, directory: Path) -> None:
    shutil.copytree(PACKAGES / package, directory)


@pytest.mark.parametrize(("package", "specifier"), VERSIONS)
async def test_each_version_of_zod_describes_fills_in_transforms_and_refuses(
    daemon: RunningDaemon, package: str, specifier: str
) -> None:
    if package:
        install(package, daemon.project / "node_modules" / "zod")
    write(daemon, ZOD.replace("IMPORT", specifier))
    async with daemon.connect() as session:
        await session.described()
        assert session.catalog.problems == ()
        for tool in ("it_fields", "it_whole"):
            schema = session.catalog.tools[tool].input_schema
            found = schema["properties"]
            assert schema["required"] == ["text"], tool
            assert found["text"] == {"type": "string", "minLength": 2, "description": "what is measured"}
            assert found["unit"] == {
                "type": "string",
                "enum": ["m", "s"],
                "default": "m",
                "description": "which",
            }
            assert (found["count"]["type"], found["count"]["description"]) == ("integer", "how many")
            assert found["tags"]["items"] == {"type": "string", "description": "a tag"}
            assert found["place"]["properties"]["x"]["description"] == "from the left"
            outcome = await session.call(tool, {"text": "abc", "place": {}, "date": "2024-02-29", "more": 1})
            assert json.loads(outcome.text) == {
                "text": 3,
                "unit": "m",
                "tags": [],
                "place": {"x": 1},
                "date": "2024-02-29T00:00:00.000Z",
            }
            refused = await session.call(tool, {"text": "a", "unit": "km"})
            assert (refused.kind, refused.ran) == ("invalid_arguments", False)
            assert "  text: " in refused.text
            assert "  unit: " in refused.text


@pytest.mark.parametrize("package", ["", "@sinclair/typebox", "typebox"])
async def test_each_version_of_typebox_describes_fills_in_and_refuses(
    daemon: RunningDaemon, package: str
) -> None:
    specifier = package or "@sinclair/typebox"
    if package:
        install(package, daemon.project / "node_modules" / package)
    write(daemon, TYPEBOX.replace("IMPORT", specifier))
    async with daemon.connect() as session:
        await session.described()
        assert session.catalog.problems == ()
        found: dict[str, Any] = session.catalog.tools["it_whole"].input_schema["properties"]
        assert found["text"] == {"type": "string", "minLength": 2, "description": "what is measured"}
        assert (found["unit"]["default"], found["unit"]["description"]) == ("m", "which")
        assert found["tags"]["items"] == {"type": "string", "description": "a tag"}
        outcome = await session.call("it_whole", {"text": "abc", "place": {}})
        assert json.loads(outcome.text) == {"text": "abc", "unit": "m", "tags": [], "place": {"x": 1}}
        refused = await session.call("it_whole", {"text": "a", "unit": "km"})
        assert (refused.kind, refused.ran) == ("invalid_arguments", False)
        assert "  text: " in refused.text
        assert "  unit: " in refused.text


STANDARD: Final = """
// As Valibot's are: a `type` that is none of JSON Schema's, beside what Standard Schema asks for.
const of = (vendor, validate, jsonSchema) => ({ type: "object", "~standard": { version: 1, vendor, validate, jsonSchema } })
const text = of("ours", async (it) => typeof it === "string" && it.length > 1 ? { value: it.length } : { issues: [{ message: "too short" }] },
  { input: () => ({ $schema: "x", type: "string", minLength: 2, description: "what is measured" }) })
const unit = of("ours", (it = "m") => it === "m" || it === "s" ? { value: it } : { issues: [{ message: "no unit", path: [] }] },
  { input: ({ target }) => ({ enum: ["m", "s"], default: "m", description: target }) })
const whole = of("ours", async (it) => {
  const read = await text["~standard"].validate(it.text)
  return read.issues ? { issues: [{ ...read.issues[0], path: [{ key: "text" }] }] } : { value: { text: read.value } }
}, { input: () => ({ type: "object", properties: { text: text["~standard"].jsonSchema.input({}) }, required: ["text"] }) })
const execute = async (args) => JSON.stringify(args)
"""


async def test_a_standard_schema_describes_reads_and_refuses(daemon: RunningDaemon) -> None:
    tools = """
    export const fields = { description: "Fields", args: { text, unit }, execute }
    export const object = { description: "Object", args: Object.assign(() => 0, whole), execute }
    """
    write(daemon, STANDARD + tools)
    async with daemon.connect() as session:
        await session.described()
        assert session.catalog.problems == ()
        schema = session.catalog.tools["it_fields"].input_schema
        assert schema["required"] == ["text"]
        assert schema["properties"]["unit"] == {
            "enum": ["m", "s"],
            "default": "m",
            "description": "draft-2020-12",
        }
        for tool, read in (("it_fields", {"text": 3, "unit": "m"}), ("it_object", {"text": 3})):
            found: dict[str, Any] = session.catalog.tools[tool].input_schema["properties"]
            assert found["text"]["minLength"] == 2
            outcome = await session.call(tool, {"text": "abc", "more": 1})
            assert json.loads(outcome.text) == read
            refused = await session.call(tool, {"text": "a", "unit": "km"})
            assert (refused.kind, refused.ran) == ("invalid_arguments", False)
            assert "  text: too short" in refused.text
            assert ("  unit: no unit" in refused.text) == (tool == "it_fields")


async def test_a_standard_schema_without_its_json_schema_is_a_problem_that_says_so(
    daemon: RunningDaemon,
) -> None:
    tools = """
    const told = of("valibot", (value) => ({ value }))
    const other = of("arktype", (value) => ({ value }), {})
    export const lone = { description: "Lone", args: told, execute }
    export const fields = { description: "Fields", args: { text, other }, execute }
    """
    write(daemon, STANDARD + tools)
    async with daemon.connect() as session:
        await session.described()
        assert not session.catalog.tools
        messages = {problem.tool: problem.message for problem in session.catalog.problems}
        assert 'a schema of valibot without "~standard".jsonSchema' in messages["it_lone"]
        assert "@valibot/to-json-schema" in messages["it_lone"]
        assert 'a schema of arktype without "~standard".jsonSchema' in messages["it_fields"]
        assert "valibot" not in messages["it_fields"]


PLUGIN: Final = """
import { z } from "zod"
export function tool(definition) { return definition }
tool.schema = z
"""
USES: Final = """
import { tool } from "@opencode-ai/plugin"
IMPORT
export default tool({
  description: "It",
  args: {
    own: tool.schema.string().describe("of the plugin").transform((it) => it.length),
    other: z.enum(["a", "b"]).default("a").describe("of the project"),
  },
  execute: async (args) => JSON.stringify([args, tool.schema.core.version.minor, z.core.version.minor]),
})
"""


@pytest.mark.parametrize(
    ("of_plugin", "of_project", "imported", "versions"),
    [
        ("zod-4.1", "zod", 'import { z } from "zod"', [1, 6]),
        ("zod", "zod-4.1", 'import { z } from "zod"', [6, 1]),
        ("zod-4.1", "", "const z = tool.schema", [1, 1]),
        ("zod-4.1", "", 'import { z } from "zod"', [1, 6]),  # the other one is Toolcell's
    ],
)
async def test_a_plugin_that_brings_its_own_copy_of_zod_keeps_it(
    daemon: RunningDaemon, of_plugin: str, of_project: str, imported: str, versions: list[int]
) -> None:
    plugin = daemon.project / "node_modules" / "@opencode-ai" / "plugin"
    install(of_plugin, plugin / "node_modules" / "zod")
    (plugin / "package.json").write_text(
        '{"name": "@opencode-ai/plugin", "type": "module", "main": "index.js"}'
    )
    (plugin / "index.js").write_text(PLUGIN)
    if of_project:
        install(of_project, daemon.project / "node_modules" / "zod")
    write(daemon, USES.replace("IMPORT", imported))
    async with daemon.connect() as session:
        await session.described()
        assert session.catalog.problems == ()
        schema = session.catalog.tools["it"].input_schema
        assert schema["properties"]["own"] == {"type": "string", "description": "of the plugin"}
        assert schema["properties"]["other"]["description"] == "of the project"
        assert schema["required"] == ["own"]
        outcome = await session.call("it", {"own": "abc"})
        assert json.loads(outcome.text) == [{"own": 3, "other": "a"}, *versions]
