from toolcell import tool


@tool(time_out=5)
def misspelt_option() -> str:
    """Want a limit that does not exist."""
    return ""
