"""What to write in place of returning a value that has no JSON form, for the kinds of values that are returned by mistake.

A class is looked for by its name, as none of its modules is imported for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

RAISE: Final = "Raise it, and the call fails with its message."
CALL: Final = "Call it, and return what that gives."
READ: Final = "Return what is in it, file.read(), or its path, file.name."
VALUE: Final = "Return what is in it: file.getvalue()."
AWAIT: Final = "Return its value: `await` it, or future.result()."
OF_RESPONSE: Final = "Return what it has: response.text or response.json()."
ENTER: Final = "Enter it in the tool, by `with` or `async with`, and return what it gives."
OTHERWISE: Final = "Return text, plain data, a dataclass, a model or a ToolResult."
OF_CLASSES: Final[Mapping[str, str]] = {
    "builtins.BaseException": RAISE,
    "builtins.function": CALL,
    "builtins.method": CALL,
    "builtins.builtin_function_or_method": CALL,
    "functools.partial": CALL,
    "builtins.type": "Make an object of it, and return its data.",
    "builtins.coroutine": "Write `await` before the call that makes it, in a tool that is `async def`.",
    "builtins.async_generator": "Return a list: [value async for value in values].",
    "builtins.bytes": "Decode it; a picture is returned as Image(data=…), anything else is best written to a file.",
    "_io.StringIO": VALUE,
    "_io.BytesIO": VALUE,
    "http.client.HTTPResponse": "Return what is in it: response.read().",
    "_io._IOBase": READ,
    "tempfile._TemporaryFileWrapper": "Return what is in it, by file.seek(0) and file.read().",
    "socket.socket": "Return what it receives: socket.recv(65536).decode().",
    "subprocess.Popen": "Return what it prints: process.communicate()[0], with stdout=subprocess.PIPE.",
    "subprocess.CompletedProcess": "Return what it has printed: result.stdout, with capture_output=True and text=True.",
    "threading.Thread": "Wait for it, by thread.join(), and return what it has made.",
    "concurrent.futures._base.Executor": "Return what its work gives: future.result().",
    "concurrent.futures._base.Future": "Return its value: future.result().",
    "_asyncio.Future": AWAIT,
    "sqlite3.Connection": "Return rows: connection.execute(…).fetchall().",
    "re.Match": "Return its text, match.group(), or match.groupdict().",
    "posix.DirEntry": "Return its path: entry.path.",
    "types.SimpleNamespace": "Return its values: vars(namespace).",
    "argparse.Namespace": "Return its values: vars(namespace).",
    "requests.models.Response": OF_RESPONSE,
    "httpx.Response": OF_RESPONSE,
    "aiohttp.client_reqrep.ClientResponse": "Return what it has: await response.text() or await response.json().",
}
"""By the module and the name of a class; those of it whose objects `with` gives itself would not be mended by `with`."""


def way_out(value: object) -> str:
    """Return what to write in place of returning a value: a sentence or two."""
    kind = type(value)
    for each in kind.__mro__:
        if said := OF_CLASSES.get(f"{each.__module__}.{each.__qualname__}"):
            return said
    if hasattr(kind, "__enter__") or hasattr(kind, "__aenter__"):
        return ENTER
    return OTHERWISE
