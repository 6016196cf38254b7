"""The paths of sockets, tokens, state and configuration; the only module that reads the environment for paths.

The daemon and its clients both import this module, so that they agree without configuration, also on the names of tool files.
Directories follow XDG. The runtime directory holds the socket, the lock and the two tokens;
`TOOLCELL_SOCKET` moves all of them together. The state directory holds what survives a restart.
Both ends also ask here whether a daemon listens on a socket.
The command imports this module at its start, so what only annotations need is not imported.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container
    from typing import Final

__all__ = [
    "ANSWER_SECONDS",
    "SCRIPTS",
    "agent_token_path",
    "answers",
    "config_home",
    "config_paths",
    "is_test",
    "lock_path",
    "operator_token_path",
    "plugin_directories",
    "socket_path",
    "state_directory",
    "tested_by",
    "tests_of",
    "tool_stem",
]

SCRIPTS: Final = (".ts", ".mts", ".cts", ".tsx", ".js", ".mjs", ".cjs", ".jsx")
"""The endings of tool files in TypeScript and JavaScript."""
ANSWER_SECONDS: Final = 5.0
"""For the first byte of a daemon that listens; one with work to do answers within milliseconds."""
TESTS: Final = "tests"
"""The directory beside tool files that has their tests, and no tools."""


def socket_path() -> str:
    """Return the path of the socket of the user's daemon: `$TOOLCELL_SOCKET`, else below the runtime directory."""
    if chosen := os.environ.get("TOOLCELL_SOCKET"):
        return os.path.abspath(chosen)
    if runtime := _absolute("XDG_RUNTIME_DIR"):
        return os.path.join(runtime, "toolcell", "daemon.sock")
    # No session manager: a directory that only this user could have created; both ends check its owner and mode.
    return f"/tmp/toolcell-{os.getuid()}/daemon.sock"  # noqa: S108


def answers(socket: str) -> bool:
    """Return whether a daemon listens on a socket; a connection to a local socket succeeds or fails at once."""
    import socket as sockets  # late: not everybody who wants a path looks for a daemon

    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(socket)
        except BlockingIOError:
            return True  # its backlog is full: it is there, and busy
        except OSError:
            return False
    return True


def lock_path(socket: str) -> str:
    """Return the path of the file that a running daemon keeps locked."""
    return os.path.join(os.path.dirname(socket), "daemon.lock")


def agent_token_path(socket: str) -> str:
    """Return the path of the token for agents."""
    return os.path.join(os.path.dirname(socket), "agent.token")


def operator_token_path(socket: str) -> str:
    """Return the path of the token for operators."""
    return os.path.join(os.path.dirname(socket), "operator.token")


def state_directory() -> str:
    """Return the directory of outputs, records and the describe cache."""
    base = _absolute("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(base, "toolcell")


def config_paths() -> list[str]:
    """Return the configuration files; later ones override earlier ones. `$TOOLCELL_CONFIG` replaces them all."""
    if chosen := os.environ.get("TOOLCELL_CONFIG"):
        return [os.path.abspath(chosen)]
    return ["/etc/toolcell/config.toml", os.path.join(config_home(), "toolcell", "config.toml")]


def config_home() -> str:
    """Return the directory of the user's configuration, of all programs."""
    return _absolute("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")


def _absolute(name: str) -> str:
    """Return a directory of XDG; empty where a relative one is set, which its specification has ignored.

    The daemon does not work where its clients do, so they would look for it in one place and it would serve in another.
    """
    path = os.environ.get(name, "")
    return path if os.path.isabs(path) else ""


def plugin_directories() -> list[str]:
    """Return the directories of the user's plugin files; `$TOOLCELL_PLUGINS` replaces them, as a list like `$PATH`."""
    if chosen := os.environ.get("TOOLCELL_PLUGINS"):
        return [os.path.abspath(directory) for directory in chosen.split(os.pathsep) if directory]
    return [os.path.join(config_home(), "toolcell", "plugins"), os.path.expanduser("~/.config/aynd/tools")]


def tool_stem(path: str) -> str:
    """Return the name of a tool file without its ending; for a package, the name of its directory."""
    directory, name = os.path.split(path)
    stem, ending = os.path.splitext(name)
    if name == "__init__.py" or (stem == "index" and ending in SCRIPTS):
        return os.path.basename(directory)
    return stem if ending in (".py", ".json", *SCRIPTS) else name


def tested_by(name: str) -> str:
    """Return the stem of the tool file that a file tests by its name: of `test_lint.py`, `lint_test.py`, `lint.test.ts`.

    Empty for other names.
    """
    stem, ending = os.path.splitext(name)
    if ending == ".py":
        return stem.removeprefix("test_") if stem.startswith("test_") else _before(stem, "_test")
    return _before(stem, ".test") or _before(stem, ".spec") if ending in SCRIPTS else ""


def _before(stem: str, suffix: str) -> str:
    return stem.removesuffix(suffix) if stem.endswith(suffix) else ""


def is_test(name: str, names: Container[str]) -> bool:
    """Return whether an entry of a directory of tools belongs to the tests of those that are there, and is no tool.

    A file is a test by its name only where the file that it tests lies beside it, because `run_test` is a good name for
    a tool.

    Args:
        name: The name of the entry.
        names: Those of all entries of the directory.
    """
    if name in ("conftest.py", TESTS):
        return True
    tested = tested_by(name)
    return bool(tested) and any(f"{tested}{ending}" in names for ending in ("", ".py", *SCRIPTS))


def tests_of(path: str) -> tuple[str, ...]:
    """Return the test files of a tool file in Python: beside it, and in the directory `tests` beside it.

    Blocks on the file system.
    """
    stem, directory = tool_stem(path), os.path.dirname(path)
    if os.path.basename(path) == "__init__.py":
        directory = os.path.dirname(directory)
    found = (
        os.path.join(directory, place, name)
        for place in ("", TESTS)
        for name in (f"test_{stem}.py", f"{stem}_test.py")
    )
    return tuple(filter(os.path.isfile, found))
