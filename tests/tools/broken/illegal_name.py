from toolcell import tool


@tool(name="not a name")
def illegal_name() -> str:
    """Have a name that no host takes."""
    return ""
