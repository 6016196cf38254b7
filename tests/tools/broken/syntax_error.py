from toolcell import tool


@tool
def syntax_error(:
    return ""
