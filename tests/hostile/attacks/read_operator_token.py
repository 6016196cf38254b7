"""Reads the operator's token."""

import os
import signal
from pathlib import Path
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def read_operator_token(target: dict[str, Any]) -> str:
    token = Path(os.path.dirname(target["daemon_socket"]), "operator.token").read_text()
    return f"the token is {token}"
