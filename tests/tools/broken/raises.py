def prepare() -> None:
    raise ValueError("the index is empty")


prepare()
