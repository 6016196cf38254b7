"""Runs a read-only query on a SQLite file and returns the rows as data."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

from toolcell import Aborted, Field, ToolError, tool

INSTRUCTIONS_PER_CHECK = 10_000  # of SQLite's virtual machine; an abort waits for a fraction of a millisecond


@tool(read_only=True, timeout=30)
def sqlite_query(
    database: Annotated[str, "SQLite file, relative to the project"],
    query: Annotated[str, "One SELECT statement, with ? for each parameter"],
    parameters: Annotated[tuple[str | int | float | None, ...], "Values for the parameters"] = (),
    rows_max: Annotated[int, Field(ge=1, le=10_000)] = 200,
) -> list[dict[str, Any]]:
    """Query a SQLite database, which is opened read-only."""
    uri = f"{Path(database).absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            # A long query does not return to the interpreter, which therefore handles no signals. The progress
            # handler returns to it regularly, so that an abort is raised there; sqlite3 swallows the exception
            # and interrupts the query instead.
            connection.set_progress_handler(lambda: 0, INSTRUCTIONS_PER_CHECK)
            return [dict(row) for row in connection.execute(query, parameters).fetchmany(rows_max)]
    except sqlite3.Error as error:
        if error.sqlite_errorname == "SQLITE_INTERRUPT":
            raise Aborted("the query was interrupted") from None
        raise ToolError(f"{database}: {error}") from error
