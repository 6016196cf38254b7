"""Takes models, enums and patterns as arguments, and raises an error with the valid values."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from pydantic import BaseModel

from toolcell import Field, ToolError, tool

PRICES = {"ABC-001": 1250, "ABC-002": 399, "XYZ-900": 18_000}  # cents


class Side(Enum):
    buy = "buy"
    sell = "sell"


class Line(BaseModel):
    sku: Annotated[str, Field(pattern=r"^[A-Z]{3}-\d{3}$")]
    quantity: Annotated[int, Field(ge=1)] = 1


class Total(BaseModel):
    side: Side
    cents: int


@tool(read_only=True)
def order(lines: list[Line], side: Side = Side.buy) -> Total:
    """Price an order."""
    if unknown := [line.sku for line in lines if line.sku not in PRICES]:
        raise ToolError(f"Unknown sku {unknown[0]}; known: {', '.join(PRICES)}", details={"unknown": unknown})
    return Total(side=side, cents=sum(PRICES[line.sku] * line.quantity for line in lines))
