"""A running `opencode serve`, as far as it matters here: its MCP servers, and whether it works.

OpenCode keeps everything by directory, so every request names one.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self, cast
from urllib.parse import quote

import httpx2

# The first one of a directory opens it, plugins and all; MCP servers have 60 s to start
REQUEST_SECONDS = 90.0
CONNECT_SECONDS = 5.0


class OpenCodeError(Exception):
    """OpenCode did not do what it was asked to; the text says what happened."""


class OpenCodeApi:
    """One directory of a running server."""

    def __init__(self, client: httpx2.AsyncClient, directory: str) -> None:
        self._client = client
        self.directory = directory

    @classmethod
    @asynccontextmanager
    async def at(
        cls,
        url: str,
        *,
        directory: str | os.PathLike[str] = ".",
        password: str | None = None,
        username: str = "opencode",
    ) -> AsyncGenerator[Self]:
        """The server at a URL; `password` is what it was given as OPENCODE_SERVER_PASSWORD."""
        path = os.path.realpath(directory)  # noqa: ASYNC240  once
        async with httpx2.AsyncClient(
            base_url=url,
            auth=(username, password) if password is not None else None,
            params={"directory": path},
            timeout=httpx2.Timeout(REQUEST_SECONDS, connect=CONNECT_SECONDS),
            trust_env=False,  # the password is for this server, and for no proxy
        ) as client:
            yield cls(client, path)

    async def tools(self) -> list[str]:
        """The names of OpenCode's own tools, those of plugins among them; not those of MCP servers."""
        return cast("list[str]", await self._do("GET", "/experimental/tool/ids"))

    async def mcp(self) -> Mapping[str, Mapping[str, str]]:
        """The MCP servers by name, each with its `status`: "connected", "failed" with an `error`, "disabled"."""
        return cast("Mapping[str, Mapping[str, str]]", await self._do("GET", "/mcp"))

    async def add_mcp(self, name: str, config: Mapping[str, Any]) -> None:
        """Have it start an MCP server, in place of one of that name; returns when its tools are known."""
        found = await self._do("POST", "/mcp", {"name": name, "config": config})
        status = cast("Mapping[str, Mapping[str, str]]", found).get(name, {})
        if status.get("status") != "connected":
            why = status.get("error") or status.get("status") or "it does not say why"
            raise OpenCodeError(f"OpenCode could not connect to the MCP server {name}: {why}")

    async def remove_mcp(self, name: str) -> None:
        """Have it end an MCP server; one that it does not know is none to end."""
        await self._do("POST", _removal(name), missing=True)

    def removal(self, name: str) -> str:
        """The URL that a POST to ends an MCP server."""
        return str(self._client.build_request("POST", _removal(name)).url)

    async def reload(self) -> bool:
        """Have it open the directory anew, which lets plugins list their tools again. False while a session works.

        What works would be aborted. MCP servers that were added while it ran are gone afterwards.
        """
        if await self._do("GET", "/session/status"):
            return False
        await self._do("POST", "/instance/dispose")
        return True

    async def _do(self, method: str, path: str, body: object = None, *, missing: bool = False) -> object:
        try:
            response = await self._client.request(method, path, json=body)
        except httpx2.HTTPError as error:
            where = self._client.base_url
            raise OpenCodeError(
                f"No OpenCode answers at {where}: {error or type(error).__name__}\nStart it: opencode serve"
            ) from error
        if response.status_code == 401:
            raise OpenCodeError("OpenCode wants its password, the one in its OPENCODE_SERVER_PASSWORD.")
        if missing and response.status_code == 404:
            return None
        if response.is_error:
            raise OpenCodeError(
                f"OpenCode answered {method} {path} with {response.status_code}: {response.text[:500]}"
            )
        try:
            return response.json()
        except ValueError as error:  # its own pages, which it shows for what it does not know
            raise OpenCodeError(
                f"At {self._client.base_url} is no OpenCode server that knows {path}."
            ) from error


def _removal(name: str) -> str:
    return f"/mcp/{quote(name, safe='')}/disconnect"
