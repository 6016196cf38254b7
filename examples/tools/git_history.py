"""Returns the history of a repository as structured data, so that the model does not have to parse text."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel

from toolcell import Field, ToolContext, tool

FORMAT = "%H%x1f%aI%x1f%an%x1f%s%x1e"  # fields end with a unit separator, commits with a record separator


class Commit(BaseModel):
    hash: str
    time: str
    author: str
    subject: str


@tool(read_only=True, timeout=30)
async def git_history(
    context: ToolContext,
    path: Annotated[str, "Only commits that touch this file or directory"] = ".",
    limit: Annotated[int, Field(ge=1, le=1000)] = 20,
) -> list[Commit]:
    """List the commits of the project's repository, the newest first."""
    done = await context.exec(
        "git", "log", f"--format={FORMAT}", f"--max-count={limit}", "--", path, check=True
    )
    records = [record.strip("\n").split("\x1f") for record in done.stdout.split("\x1e") if record.strip()]
    return [
        Commit(hash=name, time=time, author=author, subject=subject)
        for name, time, author, subject in records
    ]
