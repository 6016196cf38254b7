"""The paths of sockets, tokens, state and configuration; the only module that reads the environment for paths.

The daemon and its clients both import this module, so that they agree without configuration.
Directories follow XDG. The runtime directory holds the socket, the lock and the two tokens;
`TOOLCELL_SOCKET` moves all of them together. The state directory holds what survives a restart.
Both ends also ask here whether a daemon listens on a socket.
The command imports this module at its start, so what only annotations need is not imported.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Final

ANSWER_SECONDS: Final = 5.0
"""For the first byte of a daemon that listens; one with work to do answers within milliseconds."""

TLS: Final = "tls://"
"""What the address of a daemon on another machine begins with; it is no path."""

CLUSTER: Final = "cluster"
"""The address of whatever node of the cluster that was joined; a directory may follow after a colon, VOLUME:PATH, and labels and
resources after a question mark."""

SYSTEM_CONFIG: Final = "/etc/toolcell/config.toml"
"""The configuration of root, for all users. No variable and no option moves it, as it has what users cannot loosen."""


def socket_path() -> str:
    """Return the path of the socket of the user's daemon: `$TOOLCELL_SOCKET`, else below the runtime directory."""
    if chosen := os.environ.get("TOOLCELL_SOCKET"):
        return address_of(chosen)
    if runtime := _absolute("XDG_RUNTIME_DIR"):
        return os.path.join(runtime, "toolcell", "daemon.sock")
    # No session manager: a directory that only this user could have created; both ends check its owner and mode.
    return f"/tmp/toolcell-{os.getuid()}/daemon.sock"  # noqa: S108


def address_of(chosen: str) -> str:
    """Return the path of a socket that was named, absolute; an address of another machine as it is."""
    return chosen if _is_address(chosen) else os.path.abspath(chosen.removeprefix("unix:"))


def is_elsewhere(address: str | None) -> bool:
    """Return whether a daemon, None for the user's own, is on another machine."""
    return _is_address(address or socket_path())


def is_cluster(address: str) -> bool:
    """Return whether an address is that of the cluster; a socket of this name is ./cluster."""
    return address == CLUSTER or address.startswith((f"{CLUSTER}:", f"{CLUSTER}?"))


def _is_address(text: str) -> bool:
    return text.startswith(TLS) or is_cluster(text)


def machine_file(address: str) -> str:
    """Return the path of the file that joining the machine at HOST:PORT has written."""
    return os.path.join(config_home(), "toolcell", "machines", f"{address.replace(os.sep, '_')}.pem")


def cluster_file() -> str:
    """Return the path of the file that joining a cluster has written."""
    return os.path.join(config_home(), "toolcell", "cluster.pem")


def answers(socket: str) -> bool:
    """Return whether a daemon listens on a socket.

    One without a token beside it is systemd's, which starts a daemon for each connection: it is not asked.
    """
    return os.path.exists(agent_token_path(socket)) and listens(socket)


def listens(socket: str) -> bool:
    """Return whether a process listens on a socket; a connection to a local socket succeeds or fails at once."""
    import socket as sockets  # late: it takes longer to import than this module, and only this function needs it

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
    return os.path.join(os.path.dirname(socket), "agent.token")


def operator_token_path(socket: str) -> str:
    return os.path.join(os.path.dirname(socket), "operator.token")


def state_directory() -> str:
    """Return the directory of outputs, records and the describe cache."""
    base = _absolute("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(base, "toolcell")


def config_paths() -> list[str]:
    """Return the configuration files; later ones override earlier ones. `$TOOLCELL_CONFIG` replaces them all.

    Of `SYSTEM_CONFIG` what it enforces holds in any case.
    """
    if chosen := os.environ.get("TOOLCELL_CONFIG"):
        return [os.path.abspath(chosen)]
    return [SYSTEM_CONFIG, os.path.join(config_home(), "toolcell", "config.toml")]


def config_home() -> str:
    """Return the directory of the user's configuration, of all programs."""
    return _absolute("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")


def _absolute(name: str) -> str:
    """Return a directory of XDG; empty where a relative one is set, which its specification has ignored.

    The daemon does not work where its clients do, so they would look for it in one place and it would serve in another.
    """
    path = os.environ.get(name, "")
    return path if os.path.isabs(path) else ""


def plugin_directories(others: Iterable[str] = ()) -> list[str]:
    """Return the directories of the user's plugin files; `$TOOLCELL_PLUGINS` replaces them, as a list like `$PATH`.

    Args:
        others: Those of other systems, which come after our own. Default: none.
    """
    if chosen := os.environ.get("TOOLCELL_PLUGINS"):
        return [os.path.abspath(directory) for directory in chosen.split(os.pathsep) if directory]
    return [os.path.join(config_home(), "toolcell", "plugins"), *others]


def is_below(path: str, directory: str) -> bool:
    """Return whether a path is a directory or lies in it, by its text."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")
