from toolcell import tool

print("loading the model ...")


@tool
def prints() -> str:
    """Answer all the same."""
    return "printed"
