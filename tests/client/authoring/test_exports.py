"""What a file exports, under which names, and what becomes of tools that cannot be used."""

import re
import sys
from collections.abc import Iterator
from importlib.abc import Loader
from textwrap import dedent
from types import ModuleType
from typing import Any

import pytest

from toolcell import tool
from toolcell._authoring.discover import Export, Exports, exports
from toolcell.testing import FakeContext

PREAMBLE = "from toolcell import *\nfrom typing import Annotated, Any\n"


@pytest.fixture
def modules() -> Iterator[dict[str, ModuleType]]:
    """Modules that a test loads, removed again afterwards."""
    before = set(sys.modules)
    yield sys.modules
    for name in set(sys.modules) - before:
        del sys.modules[name]


class _Loaded(Loader):
    def __init__(self, source: str) -> None:
        self.source = source

    def get_source(self, _: str) -> str:
        return self.source


def run(source: str, stem: str = "orders", *, preamble: str = PREAMBLE) -> Exports:
    """What a file of this name and source exports, as a worker loads it."""
    module = ModuleType(stem.replace("-", "_"))
    module.__loader__ = _Loaded(preamble + dedent(source))
    sys.modules[module.__name__] = module
    exec(compile(module.__loader__.source, f"{stem}.py", "exec", dont_inherit=True), module.__dict__)
    return exports(module.__dict__, stem)


def one(source: str, stem: str = "orders") -> Export:
    found = run(source, stem)
    assert not found.problems
    (export,) = found.tools
    return export


def names(found: Exports) -> list[str]:
    return [export.name for export in found.tools]


pytestmark = pytest.mark.usefixtures("modules")


@pytest.mark.parametrize(
    ("stem", "source", "name"),
    [
        ("lint", "@tool\ndef lint() -> str: ...", "lint"),
        ("lint", "@tool\ndef default() -> str: ...", "lint"),
        ("orders", "@tool\ndef total() -> int: ...", "orders_total"),
        ("orders", "@tool(name='sum')\ndef total() -> int: ...", "sum"),
        ("git-log", "@tool\ndef git_log() -> str: ...", "git-log"),
        ("greet", "greet = tool(description='d', execute=lambda args, context: 'x')", "greet"),
        ("say", "@tool\ndef hello() -> str: ...\nsay = hello", "say"),
    ],
)
def test_a_tool_is_named_by_its_file_and_its_export(stem: str, source: str, name: str) -> None:
    assert one(source, stem).name == name


def test_a_second_tool_does_not_rename_the_first() -> None:
    first = "@tool\ndef orders() -> str: ...\n"
    assert names(run(first)) == ["orders"]
    assert names(run(first + "@tool\ndef total() -> int: ...\n")) == ["orders", "orders_total"]


def test_a_tool_with_two_names_in_the_file_is_one_tool() -> None:
    assert names(run("@tool\ndef a() -> str: ...\nb = a\n")) == ["orders_a"]


@pytest.mark.parametrize(
    "name",
    ["", "a b", "a__b", "x" * 65, "tool.name", "é"],
)
def test_an_illegal_name_rejects_that_tool_and_keeps_the_others(name: str) -> None:
    found = run(f"@tool(name={name!r})\ndef bad() -> str: ...\n@tool\ndef good() -> str: ...\n")
    assert names(found) == ["orders_good"]
    (problem,) = found.problems
    assert problem.tool == name
    assert "1 to 64 letters" in problem.message
    assert problem.line == 3


def test_the_second_of_two_equal_names_is_rejected_with_the_line_of_the_first() -> None:
    found = run("@tool(name='x')\ndef a() -> str: ...\n@tool(name='x')\ndef b() -> str: ...\n")
    assert names(found) == ["x"]
    assert [(problem.tool, problem.line) for problem in found.problems] == [("x", 5)]
    assert "line 3" in found.problems[0].message


ODD = """
class Odd(str):
    @classmethod
    def __get_pydantic_core_schema__(cls, source, handler):
        return handler(str)

    @classmethod
    def __get_pydantic_json_schema__(cls, core, handler):
        raise KeyError("ref")

"""


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("@tool\ndef bad(*rest: str): ...", "*rest: str"),
        ("@tool\ndef bad(**rest: str): ...", "**rest: str"),
        (
            "import socket\n@tool\ndef bad(s: socket.socket): ...",
            "'s' has a type that JSON cannot fill: an object of the class socket.socket",
        ),
        (
            "from typing import Callable\n@tool\ndef bad(s: Callable[[], int]): ...",
            "'s' has a type that JSON cannot fill: a function",
        ),
        (ODD + "@tool\ndef bad(s: Odd): ...", "'s' has a type that JSON cannot fill: KeyError: 'ref'"),
        (
            "@tool\ndef bad(s: 'Missing'): ...",
            "'s': its annotation 'Missing' cannot be read: name 'Missing' is not defined",
        ),
        (
            (
                "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from collections.abc import Sequence\n"
                "@tool\ndef bad(s: 'Sequence[int]'): ..."
            ),
            (
                "name 'Sequence' is not defined; line 5 imports Sequence under `if TYPE_CHECKING:`, "
                "which is not there when the file runs: import it outside of that"
            ),
        ),
        ("@tool(timeot=3)\ndef bad(): ...", "did you mean 'timeout'"),
        ("@tool(description='x' * 9000)\ndef bad(): ...", "8192 bytes"),
        ("bad = tool(description='d', args=int, execute=lambda a, c: 1)", "args=int is no object"),
        ("bad = tool(description='d', args={'x': 'str'}, execute=lambda a, c: 1)", "give its type"),
        ("bad = tool(description='d', args={'x': int}, execute=lambda a: 1)", "the arguments and a context"),
        (
            "bad = tool(description='d', args={'type': 'object', 'contains': {}}, execute=lambda a, c: 1)",
            "'contains' would not be enforced",
        ),
        (
            "bad = tool(description='d', args={'type': 'object', '$ref': '#/$defs/x'}, execute=lambda a, c: 1)",
            "'#/$defs/x' does not belong there",
        ),
        (
            "args = {'x': Annotated[str, Field(description='y' * 60_000)]}\nbad = tool(args=args, execute=lambda a, c: 1)",
            "the most is 49152",
        ),
    ],
)
def test_a_tool_that_cannot_be_used_is_a_problem_that_says_why(source: str, message: str) -> None:
    found = run(source + "\n@tool\ndef good() -> str: ...\n")
    assert names(found) == ["orders_good"]
    (problem,) = found.problems
    assert problem.tool == "orders_bad"
    assert message in problem.message
    assert problem.line > 0


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("output='end'", 'option output: \'end\' is not there; write "head", "tail", "middle"'),
        ("timeout=-1", 'option timeout: -1 is no duration between 0 and 366 days; write seconds, or "500ms"'),
        ("timeout='2 minutes'", "option timeout: '2 minutes' is no duration; write seconds, or \"500ms\""),
        ("timeout=None", "option timeout: None is no duration; write seconds"),
        ("timeout=True", "option timeout: True is no duration"),
        ("timeout=0", 'option timeout: 0 is nothing at all; write "off" for no limit'),
        ("memory='a lot'", 'option memory: \'a lot\' is no size; write bytes, or "64KiB", "512MiB"'),
        ("processes=0", "option processes: 0 should be a whole number from 1"),
        ("read_only='yes'", "option read_only: 'yes' is neither; write True or False"),
        ("title=3", "option title: 3 is no text; write it in quotes"),
        ("secrets='KEY'", "option secrets: 'KEY' is no list; write secrets=[\"KEY\"]"),
        ("secrets=None", 'option secrets: None is no list; write secrets=["…"]'),
        (
            "network='db:5432'",
            "option network: 'db:5432' is no list; write network=[\"db:5432\"], or network=True for every host",
        ),
        ("network=['a', 3]", "option network: an array of 2 has 3, which is no text"),
        ("network=None", "option network: None is no list"),
        ("name=object()", "option name: a object is no text"),
    ],
)
def test_an_option_that_is_wrong_is_told_with_its_value_and_what_it_takes(option: str, message: str) -> None:
    (problem,) = run(f"@tool({option})\ndef bad(): ...\n").problems
    assert problem.message.startswith(message), problem.message


def test_all_options_that_are_wrong_are_told_at_once() -> None:
    (problem,) = run("@tool(time_out=3, memory='lots', network='host')\ndef bad(): ...\n").problems
    first, second, third = problem.message.splitlines()
    assert first == "there is no option 'time_out'; did you mean 'timeout'?"
    assert second.startswith("option memory: 'lots' is no size")
    assert third.startswith("option network: 'host' is no list")


def test_a_duration_is_seconds_or_text_as_in_the_configuration() -> None:
    found = run("@tool(timeout='5m', queue='500ms', cpu=1.5, idle='off', memory='off')\ndef good(): ...\n")
    assert [export.options for export in found.tools] == [
        {"timeout": "5m", "queue": "500ms", "cpu": 1.5, "idle": "off", "memory": "off"}
    ]


LOST = """
import functools

def plain(function):
    return lambda: function()

def kind(function):
    @functools.wraps(function)
    def wrapper():
        return function()
    return wrapper
"""


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "@tool\ndef a(): ...\n@tool(timeout=3)\ndef a(): ...",
            "the tool a is lost, as line 17 defines a again",
        ),
        (
            "@plain\n@tool\ndef a(): ...",
            "the tool a is lost, as a is not the marked function any more; put @tool",
        ),
        (
            "@property\n@tool\ndef a(): ...",
            "the tool a is lost, as a property is no function; leave out @property",
        ),
        (
            "class Search:\n    def __init__(self, url, key=1, *more, last): ...\n    @tool\n    def find(self): ...",
            (
                "the method Search.find has @tool, and the file exports no object of Search; write, for example: "
                "tools = [Search(url=..., last=...).find]"
            ),
        ),
        (
            "class Notes:\n    @tool\n    def add(self): ...",
            "the method Notes.add has @tool, and the file exports no object of Notes; write, for example: tools = [Notes().add]",
        ),
    ],
)
def test_a_marked_function_that_is_not_exported_is_told(source: str, message: str) -> None:
    found = run(f"{LOST}\n{source}\n@tool\ndef good() -> str: ...\n")
    assert "orders_good" in names(found)
    (problem,) = found.problems
    assert problem.message.startswith(message), problem.message
    assert (problem.tool, problem.line > 0) == ("", True)


@pytest.mark.parametrize(
    "source",
    [
        "@kind\n@tool\ndef a(): ...",
        "@functools.cache\n@tool\ndef a(): ...",
        "@tool\ndef a(): ...\ndel a",
        "@tool\ndef a(): ...\nb = a",
        "if 1 > 2:\n    @tool\n    def a(): ...\nelse:\n    @tool\n    def a(): ...",
        "class Notes:\n    @tool\n    def add(self): ...\ntools = [Notes().add]",
        "class Notes:\n    @staticmethod\n    @tool\n    def add(): ...\ntools = [Notes.add]",
        "class Notes:\n    @tool\n    def add(self): ...\ndef tools(host):\n    return [Notes().add]",
        "class A:\n    @tool\n    def add(self): ...\nclass B(A):\n    @tool\n    def add(self): ...\ntools = [B().add]",
        "def make():\n    @tool\n    def a(): ...\n    return a\nx = make()\nmake()",
        "def tools(host):\n    @tool\n    def a(): ...\n    @tool\n    def b(): ...\n    return [a]",
    ],
)
def test_a_function_that_is_exported_or_taken_back_is_not_lost(source: str) -> None:
    found = run(f"{LOST}\n{source}\n@tool\ndef good() -> str: ...\n")
    assert found.problems == ()


def test_what_was_imported_from_another_module_is_not_exported(modules: dict[str, ModuleType]) -> None:
    run(
        """
        @tool
        def marked() -> str: ...
        made = tool(description="d", execute=lambda args, context: "x")
        plain = {"description": "d", "execute": lambda args, context: "x"}
        class Shell:
            description = "d"
            def execute(self, args, context): return "x"
        shared = Shell()
        """,
        "other",
    )
    found = run(
        """
        from other import marked, made, plain, shared, Shell
        own = Shell()
        """
    )
    assert names(found) == ["orders_own"]


def test_plain_mappings_and_objects_are_tools_without_an_import() -> None:
    found = run(
        """
        async def fetch(args, context): return args["n"]
        mapping = {"description": "a mapping", "args": {"n": int}, "execute": fetch, "timeout": 5}
        class Shout:
            description = "an instance"
            args = {"text": str}
            def execute(self, args, context): return args["text"].upper()
        shout = Shout()
        class Fixed:
            description = "a class that needs no instance"
            @staticmethod
            def execute(args, context): return 1
        """,
        preamble="",
    )
    assert not found.problems
    by_name = {export.name: export for export in found.tools}
    assert set(by_name) == {"orders_mapping", "orders_shout", "orders_Fixed"}
    assert by_name["orders_mapping"].is_async
    assert by_name["orders_mapping"].options == {"description": "a mapping", "timeout": 5}
    shout = by_name["orders_shout"]
    assert shout.invoke(shout.arguments(b'{"text": "hi"}'), FakeContext()) == "HI"


def test_objects_whose_attributes_raise_are_no_tools_and_no_trouble() -> None:
    found = run(
        """
        class Proxy:
            def __getattr__(self, name): raise RuntimeError("unbound")
        request = Proxy()
        @tool
        def good() -> str: ...
        """
    )
    assert names(found) == ["orders_good"]
    assert not found.problems


def test_the_decorator_returns_the_function_itself() -> None:
    found = run("def f() -> str: return 'x'\nassert tool(f) is f\nassert tool(timeout=1)(f) is f\n")
    assert found.tools[0].options == {"timeout": 1}


@pytest.mark.parametrize("what", ["@tool\nclass A: ...", "tool('name')", "tool(print)", "tool(args=int)"])
def test_the_decorator_refuses_what_is_no_function(what: str) -> None:
    with pytest.raises(TypeError):
        run(what)


def test_the_description_is_the_docstring_without_its_arguments() -> None:
    export = one(
        '''
        @tool
        def orders(path: str, n: Annotated[int, "the bare string"] = 1,
                   m: Annotated[int, "bare", Field(description="the field", ge=0)] = 2) -> str:
            """Count things.

            In a file.

            Args:
                path: Where
                    it is.
                n (int): from the docstring
                m: from the docstring

            Returns:
                A text.
            """
        '''
    )
    assert export.description == "Count things.\n\nIn a file.\n\nReturns:\n    A text."
    properties = export.input_schema["properties"]
    assert {name: part["description"] for name, part in properties.items()} == {
        "path": "Where it is.",
        "n": "the bare string",
        "m": "the field",
    }
    assert properties["m"] == {"default": 2, "description": "the field", "minimum": 0, "type": "integer"}
    assert export.input_schema["required"] == ["path"]
    assert export.input_schema["additionalProperties"] is False
    assert "title" not in export.input_schema


@pytest.mark.parametrize(
    "signature",
    [
        "context: ToolContext, n: int",
        "n: int, here: 'ToolContext'",
        "n: int, *, context: ToolContext",
        "n: int, context: ToolContext | None = None",
        "n, context: Annotated[ToolContext, 'mine']",
        "n: int, context: ToolContext, /",
    ],
)
def test_the_context_goes_where_its_annotation_stands(signature: str) -> None:
    export = one(f"@tool\ndef orders({signature}) -> Any:\n    return locals()")
    context = FakeContext()
    result: Any = export.invoke(export.arguments(b'{"n": 3}'), context)
    assert list(export.input_schema["properties"]) == ["n"]
    assert result.pop("n") == 3
    assert list(result.values()) == [context]


def test_the_context_resolves_when_it_is_imported_for_checkers_only() -> None:
    found = run(
        """
        from __future__ import annotations
        from typing import TYPE_CHECKING
        from toolcell import tool
        if TYPE_CHECKING:
            from toolcell import ToolContext
        @tool
        def orders(n: int, context: ToolContext) -> int: return n
        """,
        preamble="",
    )
    assert list(found.tools[0].input_schema["properties"]) == ["n"]


def test_parameters_may_have_any_name_and_any_default() -> None:
    export = one(
        """
        nothing = object()
        @tool
        def orders(schema: str, json: int = 1, _x: Any = nothing, tags: list[str] = [], model_config: str = "") -> Any:
            return schema, json, _x is nothing, tags, model_config
        """
    )
    first: Any = export.arguments(b'{"schema": "s"}')
    assert export.invoke(first, FakeContext()) == ("s", 1, True, [], "")
    first["tags"].append("kept by the tool")
    assert export.arguments(b'{"schema": "s"}')["tags"] == []  # a default is fresh for every call


def test_synchronous_and_asynchronous_tools_are_told_apart() -> None:
    found = run(
        """
        import functools
        def logged(f):
            @functools.wraps(f)
            def wrapper(*args, **kwargs): return f(*args, **kwargs)
            return wrapper
        @tool
        async def a() -> str: ...
        @tool
        @logged
        async def b() -> str: ...
        @tool
        def c() -> str: ...
        @tool
        @functools.cache
        def d() -> str: ...
        class Callable:
            async def __call__(self, args, context): ...
        e = tool(description="d", execute=Callable())
        """
    )
    assert not found.problems
    assert {export.name[-1]: export.is_async for export in found.tools} == {
        "a": True,
        "b": True,
        "c": False,
        "d": False,
        "e": True,
    }


def test_a_file_may_have_many_tools_but_not_any_number() -> None:
    found = run(
        "for n in range(300):\n    globals()[f't{n}'] = tool(description='d', execute=lambda a, c: 1)"
    )
    assert len(found.tools) == 256
    assert len(found.problems) == 44
    assert "more than 256" in found.problems[0].message


def test_declared_needs_are_kept_as_plain_data() -> None:
    export = one("@tool(network=('a.b',), secrets=('KEY',), read_only=True)\ndef orders() -> str: ...")
    assert export.options == {"network": ["a.b"], "secrets": ["KEY"], "read_only": True}


@pytest.mark.parametrize(
    "source",
    [
        "class Meta(type):\n    __eq__ = lambda self, other: True\nclass Odd(metaclass=Meta): ...\nodd = Odd()",
        "class Meta(type):\n    __module__ = property(lambda self: 1 / 0)\nclass Odd(metaclass=Meta): ...\nodd = Odd()",
        "class Odd:\n    __module__ = 3\nodd = Odd()",
        "class Odd:\n    __class__ = property(lambda self: 1 / 0)\nodd = Odd()",
    ],
)
def test_an_object_of_an_odd_class_takes_no_tool_along(source: str) -> None:
    assert names(run(f"{source}\n\n@tool\ndef orders() -> str: ...")) == ["orders"]


def test_a_package_of_the_project_with_the_name_of_a_library_is_left_alone(
    modules: dict[str, ModuleType],
) -> None:
    own = modules["agents"] = ModuleType("agents")
    exec("class Agent: ...\nagent = Agent()", vars(own))
    found = run("from agents import agent\n\n@tool\ndef orders() -> str: ...")
    assert (names(found), found.problems) == (["orders"], ())


def test_what_a_library_declares_without_effect_here_is_a_remark() -> None:
    from toolcell._authoring.libraries.fastmcp_server import FastMCP

    namespace: dict[str, Any] = {"__name__": __name__}
    server = FastMCP("a", middleware=[object()], auth=object(), mask_error_details=False)
    server._module = __name__  # pyright: ignore[reportPrivateUsage]  as if this file had made it
    server.add_transform(object())
    server.add_transform(object())
    server.tool(auth=object(), tags={"a"})(lambda: 1)
    plain = FastMCP("b")
    plain._module = __name__  # pyright: ignore[reportPrivateUsage]
    plain.tool(name="fine", icons=[], meta={"a": 1})(lambda: 1)
    server._tools["<lambda>"].name = "one"  # pyright: ignore[reportPrivateUsage]
    server._tools = {"one": server._tools["<lambda>"]}  # pyright: ignore[reportPrivateUsage]
    found = exports(namespace | {"server": server, "plain": plain}, "file")

    assert [tool.name for tool in found.tools] == ["one", "fine"]
    (remark,) = found.problems
    assert (remark.tool, remark.remark) == ("one", True)
    assert remark.message == "middleware=… and add_transform(…) and auth=… of its library has no effect here"


def test_a_server_of_the_low_level_class_says_what_to_use() -> None:
    from mcp.server import Server

    class Other:
        """An object of the author's, whose class is called as theirs."""

    Other.__name__ = "Server"
    server: Any = Server("low")
    (problem,) = exports({"__name__": __name__, "server": server}, "low").problems
    assert problem.message.startswith("it makes a server of the MCP SDK's low-level class")
    assert not exports({"__name__": __name__, "server": Other()}, "low").problems

    def made() -> int:
        return 1

    beside = exports({"__name__": __name__, "server": server, "made": tool(made)}, "low")
    assert (len(beside.tools), beside.problems) == (1, ())


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (
            "@tool\nclass Counter: pass",
            "Counter is a class; write @tool above a def that makes an object of it",
        ),
        (
            "class A:\n  @tool\n  @classmethod\n  def a(cls): ...",
            "a classmethod is not one; write @classmethod above @tool",
        ),
        (
            "import functools\ntool(functools.partial(print, 1))",
            "class partial is not one; write @tool above a def that calls it",
        ),
        ("tool('a')", "'a' is not one; write @tool or @tool"),
        ("tool([1])", "an object of the class list is not one; write @tool or @tool"),
    ],
)
def test_what_is_marked_and_is_no_function_is_told_by_its_kind(source: str, told: str) -> None:
    with pytest.raises(TypeError, match=re.escape(told)) as caught:
        exec(source, {"tool": tool, "__name__": "marked"})
    assert " at 0x" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("@tool\ndef bad(self, a: int): ...", "it takes self, and is no method; leave self out"),
        ("@tool\ndef bad(cls): ...", "it takes cls, and is no method; leave cls out"),
        (
            "class Notes:\n    def __init__(self, place): ...\n    @tool\n    def bad(self, a: int): ...\ntools = [Notes.bad]",
            (
                "it is a method of Notes without an object, so self would be an argument; write, for example: "
                "tools = [Notes(place=...).bad]"
            ),
        ),
        (
            "class Notes:\n    @tool\n    def bad(self): ...\nbad = Notes.bad",
            "it is a method of Notes without an object, so self would be an argument; write, for example: tools = [Notes().bad]",
        ),
    ],
)
def test_a_method_without_its_object_is_told_so(source: str, told: str) -> None:
    found = run(f"{source}\n@tool\ndef good() -> str: ...\n")
    assert names(found) == ["orders_good"]
    assert [problem.message for problem in found.problems] == [told]


@pytest.mark.parametrize(
    "source",
    [
        "@tool\ndef good(self: int): ...",
        "@tool\ndef good(self=1): ...",
        "class A:\n    @tool\n    def good(self): ...\ntools = [A().good]",
        "class A:\n    @classmethod\n    @tool\n    def good(cls): ...\ntools = [A.good]",
        "class A:\n    @staticmethod\n    @tool\n    def good(): ...\ntools = [A.good]",
    ],
)
def test_an_argument_may_be_called_self_and_a_bound_method_has_none(source: str) -> None:
    assert names(run(source)) == ["orders_good"]


@pytest.mark.parametrize(
    ("head", "told"),
    [
        (
            "def bad(values: list[int]):",
            "parameter 'values': functools keeps no results by a list; leave the cache",
        ),
        ("def bad(a: int, b: dict):", "parameter 'b': functools keeps no results by a dict"),
        ("def bad(a: Annotated[set[str], 'x']):", "parameter 'a': functools keeps no results by a set"),
        (
            "async def bad(a: int):",
            "functools keeps the coroutine of its first call, which can be awaited once",
        ),
    ],
)
@pytest.mark.parametrize("order", ["@tool\n@functools.cache", "@functools.lru_cache(maxsize=9)\n@tool"])
def test_a_cache_that_keeps_nothing_of_a_tool_is_told_so(order: str, head: str, told: str) -> None:
    found = run(
        f"import functools\n{order}\n{head} ...\n@tool\n@functools.cache\ndef good(a: tuple[int, ...]): ...\n"
    )
    assert names(found) == ["orders_good"]
    (problem,) = found.problems
    assert problem.message.startswith(told)


SINGLE = """
from functools import singledispatch
@tool
@singledispatch
def show(value: int, times: int = 1) -> int:
    return value * times
@show.register
def _(value: str, times: int = 1) -> str:
    return value.upper() * times
@show.register(list)
def _(value, times=1):
    return len(value)
"""


@pytest.mark.parametrize("order", ["@tool\n@singledispatch", "@singledispatch\n@tool"])
def test_a_function_that_dispatches_by_the_class_of_its_first_argument_takes_all_of_them(order: str) -> None:
    export = one(SINGLE.replace("@tool\n@singledispatch", order))
    schema = export.input_schema["properties"]["value"]
    assert [each["type"] for each in schema["anyOf"]] == ["integer", "string", "array"]
    assert export.output_schema is None  # each function returns another type
    for given, result in (
        ('{"value": 3}', 3),
        ('{"value": "a", "times": 2}', "AA"),
        ('{"value": [1, 2]}', 2),
    ):
        assert export.invoke(export.arguments(given.encode()), FakeContext()) == result


def test_arguments_that_a_decorator_hides_are_told_so() -> None:
    found = run(
        """
        def logged(f):
            def wrapper(*args, **kwargs): return f(*args, **kwargs)
            return wrapper
        @tool
        @logged
        def hidden(a: int) -> str: ...
        @tool
        def written(*a: int) -> str: ...
        """
    )
    hidden, written = sorted(found.problems, key=lambda problem: problem.line)
    assert "put @functools.wraps(function) above the function that the decorator returns" in hidden.message
    assert "write them out" in written.message
