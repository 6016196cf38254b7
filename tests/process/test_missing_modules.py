"""A module that is missing when a tool is called is told as one that is missing when its file is loaded: with how to get it."""

from __future__ import annotations

import pytest
from tests.daemons import RunningDaemon, running_daemon
from tests.engines import ENGINES
from tests.process.test_hooks import denied, hook
from tests.process.test_session_events import logged

from toolcell.client import Kind

pytestmark = pytest.mark.anyio

HEAD = "import ctypes, importlib\nfrom toolcell import tool\n"
TRIED = "\n    try:\n        import bs4\n    except ImportError as error:\n        raise "
PYTHON = {
    "plain": "import bs4",
    "below": "import bs4.element",
    "by_name": "importlib.import_module('bs4')",
    "of_name": "from bs4 import BeautifulSoup",
    "wrapped": f"{TRIED}RuntimeError('no soup') from error",
    "again": f"{TRIED}ImportError('pip install it')",
    "named": f"{TRIED}RuntimeError('install bs4')",
    "in_group": (
        "raise ExceptionGroup('two', [ValueError('first'), ModuleNotFoundError('bs4 is missing', name='bs4')])"
    ),
}
REMEDY = """
It ran with Toolcell's own Python. To have the package installed, begin the file with the package's name:
  # /// script
  # dependencies = ["beautifulsoup4"]
  # ///
"""
OTHERS = {
    "beside": (
        "from . import helper",
        "ImportError: it imports helper, which is not beside it\nPut the files",
    ),
    "below_it": ("from .helper import x", "it imports helper, which is not beside it\nPut the files that it"),
    "similar": ("from toolcell import Context", "\ndid you mean 'ToolContext'?"),
    "above": ("from .. import x", "it imports from the directory above (from .. import)"),
    "native": (
        "raise ImportError('libGL.so.1: cannot open shared object file: No such file or directory')",
        "\nlibGL.so.1 is a library of the system, which is not there",
    ),
    "by_ctypes": ("ctypes.CDLL('libnowhere.so.3')", "\nlibnowhere.so.3 is a library of the system, which is"),
    "of_python": (
        "raise ModuleNotFoundError('No _tkinter', name='_tkinter')",
        (
            "\n_tkinter is a part of Python that Toolcell's own Python was installed without; install it for that Python."
            "\nOr name an environment: toolcell config set source.project.python"
        ),
    ),
}
UNTOLD = {
    "another": (f"{TRIED}ValueError('the soup is cold')", "ValueError: the soup is cold"),
    "no_name": ("raise ModuleNotFoundError('lost')", "ModuleNotFoundError: lost"),
    "hostile": ("raise ModuleNotFoundError('lost', name='x; rm -rf /')", "ModuleNotFoundError: lost"),
    "option": ("raise ModuleNotFoundError('lost', name='--index-url')", "ModuleNotFoundError: lost"),
    "in_module": ("import os.no", "ModuleNotFoundError: No module named 'os.no'; 'os' is not a package"),
}


async def test_a_module_that_is_missing_in_a_call_is_told_with_how_to_get_it(daemon: RunningDaemon) -> None:
    others = {name: body for name, (body, _) in (OTHERS | UNTOLD).items()}
    bodies = (PYTHON | others).items()
    daemon.tool("some", HEAD + "".join(f"\n@tool\ndef {name}():\n    {body}\n" for name, body in bodies))
    async with daemon.connect() as session:
        told = {name: await session.call(f"some_{name}") for name, _ in bodies}
    assert {outcome.kind for outcome in told.values()} == {Kind.tool_error}
    assert {name for name, outcome in told.items() if REMEDY in outcome.message} == set(PYTHON)
    for name, (_, text) in OTHERS.items():
        assert text in told[name].message
    assert {name: told[name].message for name in UNTOLD} == {name: text for name, (_, text) in UNTOLD.items()}


async def test_a_module_that_is_gone_since_its_file_was_described_is_told_with_how_to_get_it(
    daemon: RunningDaemon,
) -> None:
    there = daemon.directory / "there"
    there.touch()
    head = f"import os\nif not os.path.exists({str(there)!r}):\n    import bs4\n"
    daemon.config.write_text('[defaults]\nsandbox = "none"\n')
    daemon.reload()
    daemon.tool("now", f"{head}{HEAD}@tool\ndef now(): pass\n")
    async with daemon.connect() as session:
        assert "now" in session.catalog.tools
        there.unlink()
        outcome = await session.call("now")
    assert (outcome.kind, outcome.cause) == (Kind.refused, "broken_tool")
    assert REMEDY.rstrip() in outcome.message


async def test_a_module_that_a_hook_misses_is_told_with_how_to_get_it(daemon: RunningDaemon) -> None:
    daemon.tool("plain", HEAD + "@tool\ndef plain(): pass\n")
    daemon.configure(hook(daemon, "guard", HEAD + "@tool\ndef before(call: dict):\n    import bs4\n"))
    async with daemon.connect() as session:
        said = denied(await session.call("plain"))
    assert said.startswith("the hook guard refused it: ModuleNotFoundError: No module named 'bs4'")
    assert said.endswith(REMEDY.rstrip())  # no environment of a source, which a hook is not of


async def test_a_module_that_on_session_misses_is_told_in_the_log(daemon: RunningDaemon) -> None:
    daemon.tool("hears", HEAD + "def on_session(event):\n    import bs4\n\n@tool\ndef hears(): pass\n")
    async with daemon.connect():
        assert "on_session(start) failed" in await logged(daemon, '# dependencies = ["beautifulsoup4"]')


SCRIPTS = {
    'await import("left-pad")': "left-pad",
    'await import("@scope/left-pad/x")': "@scope/left-pad",
    'require("left-pad")': "left-pad",
    'throw new Error("wrapped", { cause: await import("left-pad").catch((error) => error) })': "left-pad",
    'await Promise.any([import("left-pad")])': "left-pad",
    'await import("./nope.ts")': "it imports ./nope.ts, which is not there\nPut the files that it imports where it",
    'require("./nope")': "it imports ./nope, which is not there\nPut the files that it imports where it looks",
    'process.dlopen({ exports: {} }, "libnowhere.so.1")': "\nlibnowhere.so.1 is a library of the system, which is",
    """throw new Error("tsc: Cannot find module 'left-pad'")""": "",
    'await import("node:nothing")': "",
}


@pytest.mark.slow
@pytest.mark.sampled("engine")
@pytest.mark.parametrize("engine", sorted(ENGINES))
async def test_a_package_that_is_missing_in_a_call_of_a_script_is_told_with_how_to_get_it(
    engine: str,
) -> None:
    with running_daemon(environment={"PATH": f"{ENGINES[engine].parent}:/usr/bin:/bin"}) as daemon:
        place = daemon.project / ".opencode/tool"
        place.mkdir(parents=True)
        bodies = enumerate(SCRIPTS)
        (place / "some.ts").write_text(
            "\n".join(
                f'export const v{number} = {{ description: "Fail.", args: {{}}, async execute() {{ {body}; return "ran" }} }}'
                for number, body in bodies
            )
        )
        async with daemon.connect() as session:
            for number, (body, text) in enumerate(SCRIPTS.items()):
                outcome = await session.call(f"some_v{number}")
                assert (body, outcome.kind) == (body, "tool_error"), outcome
                if text.endswith("left-pad"):
                    text = f"\n{text} is not installed; nothing is installed during a call. To install it in {place}:\n"
                    text += f"  bun add --ignore-scripts {text.split()[0]}   or   npm install"
                assert text in outcome.message
                assert bool(text) == ("\n" in outcome.message)
            (package := place / "node_modules/left-pad").mkdir(parents=True)
            (package / "package.json").write_text('{"name": "left-pad", "main": "index.js"}')
            (package / "index.js").write_text("module.exports = 1")
            assert [(await session.call(f"some_v{number}")).text for number in (0, 2)] == ["ran", "ran"]
