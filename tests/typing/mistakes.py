# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
"""Mistakes that an author can make, and each checker has to find.

Both report a `type: ignore` on a line where they find no error.
"""

from pydantic import BaseModel

from toolcell import Image, ToolContext, ToolError, tool
from toolcell import ToolContxt as Context  # type: ignore[attr-defined]  # noqa: F401


class Greet(BaseModel):
    name: str


@tool(timeot=60)  # type: ignore[call-overload, untyped-decorator]
def misspelt_option() -> str:
    return ""


@tool(output="end")  # type: ignore[call-overload, untyped-decorator]
def wrong_literal() -> str:
    return ""


@tool(processes="2")  # type: ignore[call-overload, untyped-decorator]
def wrong_type() -> str:
    return ""


@tool
def drop(table: str, context: ToolContext) -> str:
    context.ask(f"Drop {table}?")  # type: ignore[unused-coroutine]
    return ""


@tool
async def lint(path: str, context: ToolContext) -> str:
    done = context.exec("ruff", "check", path)
    return done.stdout  # type: ignore[no-any-return, attr-defined]


@tool
def words(path: str, context: ToolContext) -> int:
    context.wait(context.update("half"))  # type: ignore[func-returns-value, arg-type]
    return len(path)


def use(context: ToolContext) -> None:
    words(3, context)  # type: ignore[arg-type]


attribute = tool(args=Greet, execute=lambda args, context: args.nmae)  # type: ignore[attr-defined]  # noqa: ARG005


def other(args: int, context: ToolContext) -> str:
    return str(args)


unfit = tool(args=Greet, execute=other)  # type: ignore[arg-type]


def fail() -> None:
    raise ToolError("no", detail=3)  # type: ignore[call-arg]


picture = Image("plot.png", "png")  # type: ignore[call-arg, arg-type]
