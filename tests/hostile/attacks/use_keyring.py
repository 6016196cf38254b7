"""Leaves a key in the kernel's user keyring for another cell."""

import signal
from typing import Any

from _kernel import call

from toolcell import tool

signal.alarm(20)


@tool
def use_keyring(target: dict[str, Any]) -> str:
    KEY_SPEC_USER_KEYRING = -4
    call("add_key", b"user", target["tag"].encode(), b"loot", 4, KEY_SPEC_USER_KEYRING)
    return "left"
