"""A read-only question to a SQLite file; the rows come back as data."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

from toolcell import Aborted, Field, ToolError, tool

INSTRUCTIONS_PER_LOOK = 10_000  # of SQLite's machine: a fraction of a millisecond, in which an abort waits


@tool(read_only=True, timeout=30)
def sqlite_query(
    database: Annotated[str, "SQLite file, relative to the project"],
    query: Annotated[str, "One SELECT statement; ? stands for a parameter"],
    parameters: Annotated[tuple[str | int | float | None, ...], "Values for the parameters"] = (),
    rows_max: Annotated[int, Field(ge=1, le=10_000)] = 200,
) -> list[dict[str, Any]]:
    """Ask a SQLite database; it cannot be changed by this."""
    uri = f"{Path(database).absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            # One long query never comes back to the interpreter; this brings it back, so that an abort is heard.
            # sqlite3 swallows what is raised there and interrupts the query in its place.
            connection.set_progress_handler(lambda: 0, INSTRUCTIONS_PER_LOOK)
            return [dict(row) for row in connection.execute(query, parameters).fetchmany(rows_max)]
    except sqlite3.Error as error:
        if error.sqlite_errorname == "SQLITE_INTERRUPT":
            raise Aborted("the query was interrupted") from None
        raise ToolError(f"{database}: {error}") from error
