from collections.abc import Iterator

from toolcell import tool


@tool
def yields() -> Iterator[str]:
    """Give one word after the other."""
    yield "word"
