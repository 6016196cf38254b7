from toolcell import tool

import nowhere_to_be_found


@tool
def missing_dependency() -> str:
    return str(nowhere_to_be_found)
