"""Why a file has no tools, for each shape of file that has none."""

from __future__ import annotations

import pytest

from toolcell._authoring.absence import absence, absence_in_any_case

LOW_LEVEL = """
from mcp.server import Server
from absent import call

async def serve():
    server = Server("git")

    @server.list_tools()
    async def list_tools(): ...
"""
IN_FUNCTION = """
import absent
from fastmcp import FastMCP

def create_server():
    mcp = FastMCP("wiki")

    @mcp.tool
    def search(words: str) -> str: ...

    return mcp
"""
OF_ARGUMENTS = IN_FUNCTION.replace("create_server()", "create_server(path)")
REGISTERED = """
def register(server, prefix="a"):
    @server.tool()
    def search(words: str) -> str: ...
"""
EMPTY = "from fastmcp import FastMCP\nmcp = FastMCP('a')\n"
STRANDS = "from strands import tool\n\n@tool\ndef add(a: int) -> int: ...\n"
SPEC = "TOOL_SPEC = {'name': 'add'}\n\ndef add(tool, **kwargs): ...\n"
LANGCHAIN = "from langchain_core.tools import BaseTool\n\nclass Sleep(BaseTool):\n    name = 'sleep'\n"
TOOLKIT = "from agno.tools import Toolkit\n\nclass CalculatorTools(Toolkit):\n    def add(self): ...\n"
CLASS = "class Client:\n    def get(self): ...\n\nclass _Inner: ...\n"
FUNCTIONS = (
    "def search(): ...\n\ndef _get(): ...\n\ndef main(): ...\n\nif __name__ == '__main__':\n    main()\n"
)
OWN_TOOL = "def tool(f): return f\n\n@tool\ndef search(): ...\n"
SCRIPT = "import argparse\n\ndef main(): ...\n\nif __name__ == '__main__':\n    main()\n"
TEST = "import pytest\n\ndef test_search(): ...\n"

ABSENT = {
    LOW_LEVEL: "it makes a server of the MCP SDK's low-level class",
    IN_FUNCTION: "it makes its server in create_server(), and what a function makes is not found\nAdd at its end: server = create_server()",
    OF_ARGUMENTS: "it makes its server in create_server(), and what a function makes is not found\nMake the server at the top",
    REGISTERED: "it registers its tools in register(server), which nothing calls",
    EMPTY: "its server has no tools",
    STRANDS: "the @tool of strands makes no tool here\nTake that of Toolcell: from toolcell import tool",
    SPEC: "it declares its tool by TOOL_SPEC",
    LANGCHAIN: "it defines Sleep, and a class is no tool, but an object of it may be one\nAdd at its end: tools = [Sleep(…)]",
    TOOLKIT: "it defines CalculatorTools, and a class is no tool",
    CLASS: "it only defines classes: Client\n",
    FUNCTIONS: "none of its functions has @tool: search\n",
    OWN_TOOL: "its @tool is the function tool() of this file, which makes no tool\nMark what",
    SCRIPT: "it is run as a script",
    TEST: "it is a test",
    "": "",
    "X = 1\n": "",
    "def broken(:\n": "",
    "\0": "",
}
MAY_HAVE_TOOLS = (
    "from toolcell import tool\n\n@tool\ndef a(): ...\n",
    "import toolcell\n\n@toolcell.tool(timeout=3)\ndef a(): ...\n",
    "from fastmcp import FastMCP\nmcp = FastMCP('a')\n\n@mcp.tool\ndef a(): ...\n",
    "from langchain.tools import tool\n\n@tool\ndef a(): ...\n",
    "try:\n    import absent\nexcept ImportError:\n    absent = None\ntools = [absent.a]\n",
    "from absent import *\n",
    "from absent import Agent, Tool\na = Tool(Agent())\n",
    "def default(host): ...\n",
    "class Search:\n    description = 'a'\n    def execute(self, a, b): ...\n\nsearch = Search()\n",
    "def helper(): ...\nsearch = {'description': 'a', 'execute': helper}\n",
    "def broken(:\n",
)


@pytest.mark.parametrize(("text", "said"), ABSENT.items())
def test_each_shape_of_a_file_without_tools_has_its_sentence(text: str, said: str) -> None:
    found = absence(text.encode(), "file")
    assert found.startswith(said)
    assert bool(found) == bool(said)


@pytest.mark.parametrize(
    "text", [LOW_LEVEL, IN_FUNCTION, STRANDS, SPEC, LANGCHAIN, TOOLKIT, CLASS, FUNCTIONS, TEST]
)
def test_what_can_have_no_tools_is_known_before_it_runs(text: str) -> None:
    assert absence_in_any_case(text.encode(), "file") == absence(text.encode(), "file")


@pytest.mark.parametrize("text", MAY_HAVE_TOOLS)
def test_nothing_is_said_of_a_file_that_may_have_tools_once_it_runs(text: str) -> None:
    assert absence_in_any_case(text.encode(), "file") == ""
