"""What the routes of operators answer where they do not serve: one shape, as that of the gateway."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response

from toolcell.adapters.gateway.application import JsonAnswer
from toolcell.cli._ui.exit_codes import Failure


class PageFault(Exception):
    """A request that is not served, with its status."""

    def __init__(self, status: int, reason: str, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.answer = JsonAnswer({"error": {"reason": reason, "message": message, "remedy": remedy}}, status)


def handle_faults(app: FastAPI) -> None:
    """Have every fault answered."""

    @app.exception_handler(PageFault)
    async def fault(_: Request, error: PageFault) -> Response:
        return error.answer

    @app.exception_handler(Failure)
    async def failure(_: Request, error: Failure) -> Response:
        body = {"reason": error.code, "message": error.message, "remedy": error.remedy}
        return JsonAnswer({"error": body}, 503)
