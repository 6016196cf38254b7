"""Reads a secret in the memory of another program with process_vm_readv."""

import ctypes
import errno
import signal
from typing import Any

from _kernel import call

from toolcell import tool

signal.alarm(20)


@tool
def copy_victim_memory(target: dict[str, Any]) -> str:
    buffer = ctypes.create_string_buffer(1)
    local = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 1)
    remote = (ctypes.c_size_t * 2)(0x10000, 1)
    try:
        call("process_vm_readv", target["victim"], local, 1, remote, 1, 0)
    except OSError as error:
        if error.errno != errno.EFAULT:  # nothing is mapped there; but it might have looked
            raise
    return "it may look"
