"""A word in the kernel's keyring of the user, for another cell to find."""

import signal
from typing import Any

from _kernel import call

from toolcell import tool

signal.alarm(20)


@tool
def use_keyring(world: dict[str, Any]) -> str:
    KEY_SPEC_USER_KEYRING = -4
    call("add_key", b"user", world["tag"].encode(), b"loot", 4, KEY_SPEC_USER_KEYRING)
    return "left"
