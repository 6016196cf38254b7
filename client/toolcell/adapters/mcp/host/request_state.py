"""The state of a request that a host keeps and sends back, since 2026-07-28: what it is about, sealed against changes."""

from __future__ import annotations

import hmac
import os

from mcp import MCPError, types


class RequestStates:
    """Makes the states of one host and reads them again; the key ends with it."""

    def __init__(self) -> None:
        self._key = os.urandom(32)

    def sealed(self, about: str, time: int) -> str:
        """Return a state that cannot be forged, another one for each `time` that a host is asked about the same."""
        text = f"{about}.{time}"
        return f"{text}.{self._mac(text)}"

    def about(self, state: str) -> str:
        """Return what a state is about. Raises MCPError for one that was not made here."""
        text, _, mac = state.rpartition(".")
        if not hmac.compare_digest(mac.encode(errors="surrogatepass"), self._mac(text).encode()):
            raise MCPError(types.INVALID_PARAMS, "The requestState is not of this server, or was changed.")
        return text.rpartition(".")[0]

    def _mac(self, text: str) -> str:
        return hmac.digest(self._key, text.encode(errors="surrogatepass"), "sha256").hex()
