import socket

from toolcell import tool


@tool
def bad_schema(connection: socket.socket) -> str:
    """Take what no model can write."""
    return str(connection)


@tool
def beside() -> str:
    """Be in a file with one that cannot be used."""
    return "beside"
