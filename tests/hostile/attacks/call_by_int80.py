"""Makes a system call through the 32-bit entry (int 0x80), where numbers have other meanings."""

import ctypes
import mmap
import os
import signal
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def call_by_int80(target: dict[str, Any]) -> str:
    # mov eax, 20 (getpid); int 0x80; ret
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    answer = ctypes.CFUNCTYPE(ctypes.c_int)(address)()
    if answer != os.getpid():
        raise OSError(-answer, "int 0x80")
    return "it answered"
