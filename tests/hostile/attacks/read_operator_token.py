"""The operator's token, with which the daemon obeys."""

import os
import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def read_operator_token(world: dict[str, Any]) -> str:
    token = Path(os.path.dirname(world["daemon_socket"]), "operator.token").read_text()
    return f"the token is {token}"
