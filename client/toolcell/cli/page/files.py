"""The files of the page: read once, and served as they are from a list, so that no path of a request is one of a disk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from fastapi import FastAPI, Request, Response
from starlette.routing import Route

PLACE: Final = Path(__file__).with_name("files")
LIBRARY: Final = "vendor/preact.js"
"""What `make engines` builds; all else is in the repository."""
MEDIA_TYPES: Final = {  # by the end of a name
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
INDEX: Final = "index.html"


def read_files() -> dict[str, tuple[bytes, str]]:
    """Return the content and media type of each file by its name. Raises FileNotFoundError without the library."""
    names = [path.name for path in PLACE.iterdir() if path.suffix[1:] in MEDIA_TYPES]
    return {name: ((PLACE / name).read_bytes(), _media_type(name)) for name in (*names, LIBRARY)}


def _media_type(name: str) -> str:
    return MEDIA_TYPES[name.rpartition(".")[2]]


def add_files(app: FastAPI, files: dict[str, tuple[bytes, str]]) -> None:
    """Add their routes to an application; the page itself is at its root."""
    for name, (content, media_type) in files.items():
        path = "/" if name == INDEX else f"/{name}"
        app.router.routes.append(Route(path, _serving(content, media_type), methods=["GET"]))


def _serving(content: bytes, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    async def serve(_: Request) -> Response:
        return Response(content, media_type=media_type)

    return serve
