"""What is looked at before a daemon is dialled: the directory of its socket, and the token in it.

The token lies beside the socket. A program that could replace either could impersonate the daemon, so nothing is
sent before their directory is known to be ours alone.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolcell.client.errors import Unavailable

TOKEN_BYTES_MAX = 4096  # a token is 43 characters; a file that is longer is something else
HEALTH = "/grpc.health.v1.Health/Check"
"""What a daemon that runs answers at once, whatever it is asked."""
SILENT_SECONDS = 5.0
"""For that answer, past the limit of a call that the daemon should have ended: a busy machine takes milliseconds, and a daemon
that is stopped (SIGSTOP, a debugger) takes for ever. As often it is asked again, while it answers."""
WELCOME_SECONDS = 15.0
"""For the Welcome of a daemon; a daemon that is alive answers at once, and one that swaps may need seconds."""
START_IT = "Start the daemon: toolcell serve"


def check_directory(socket: str) -> None:
    """Raise Unavailable unless the socket's directory is ours, and ours alone."""
    directory = os.path.dirname(socket)
    try:
        found = os.stat(directory)
    except FileNotFoundError as error:
        raise _unavailable(f"No daemon runs here: there is no {directory}.", START_IT) from error
    except OSError as error:
        raise _unavailable(
            f"The daemon's directory {directory} cannot be looked at: {error.strerror}."
        ) from error
    mode = stat.S_IMODE(found.st_mode)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or mode & 0o077:
        raise _unavailable(
            f"{directory} (owner {found.st_uid}, mode {mode:04o}) is not safe: "
            f"the directory of the socket must be owned by user {os.getuid()} with mode 0700.",
            f"If it is yours: chmod 700 {directory}",
        )


def read_token(path: str) -> str:
    """The token in a file. Raises Unavailable."""
    try:
        with open(path, "rb") as file:
            token = file.read(TOKEN_BYTES_MAX + 1).decode("ascii").strip()
    except FileNotFoundError as error:
        raise _unavailable(f"No daemon runs here: there is no token at {path}.", START_IT) from error
    except (OSError, UnicodeDecodeError) as error:
        raise _unavailable(f"The token at {path} cannot be read: {error}.") from error
    if not token or len(token) > TOKEN_BYTES_MAX:
        raise _unavailable(
            f"The file {path} holds no token.", "End the daemon and start it again: toolcell serve"
        )
    return token


def _unavailable(message: str, remedy: str = "") -> Unavailable:
    from toolcell.client.errors import Unavailable  # late: most daemons can be dialled

    return Unavailable(message, remedy)
