"""`toolcell join`: get to know a machine that serves others, with the code that it shows."""

from __future__ import annotations

import ssl
import tempfile
from typing import Final

from toolcell import _certificates
from toolcell._certificates import JoinCode, WrongCode
from toolcell._extras import install_command
from toolcell._paths import TLS, machine_file
from toolcell._printable import json_text, printable
from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.exit_codes import Exit, Failure, Misuse
from toolcell.cli._ui.terminal import Terminal
from toolcell.client._grpc.channel import Channel
from toolcell.client._grpc.methods import JoiningMethods
from toolcell.client._grpc.remote import open_remote_link
from toolcell.client._launch.remote import Known, Machine, split, write
from toolcell.client.errors import Refused, Unavailable
from toolcell_proto.v1 import toolcell_pb2 as pb

ANSWER_SECONDS: Final = 20.0


async def join(context: CommandContext, address: str, code: str) -> Exit:
    """Exchange a code for a certificate and a ticket, and keep them."""
    address, key, answer = await exchange(address, code)
    machine = Machine(
        node=answer.node, directory=answer.directory, authority=answer.authority, ticket=answer.ticket
    )
    shown = {"address": f"{TLS}{address}", "node": machine.node, "directory": machine.directory}
    joined = f"You can use the tools of {machine.directory} on {machine.node}."
    return keep(context, machine_file(address), machine, key + answer.certificate.encode(), shown, joined)


def keep(
    context: CommandContext, path: str, joined: Known, identity: bytes, shown: dict[str, str], text: str
) -> Exit:
    """Write what was joined, and show its address, which `shown` has among other facts, and a text."""
    try:
        write(path, joined, identity)
    except OSError as error:
        raise Failure(Exit.FAILED, "not_written", f"{path} cannot be written: {error.strerror}.") from error
    if context.as_json:
        print(json_text(shown))
    else:
        Terminal(quiet=context.quiet).note(f"{printable(text)}\n")
        print(shown["address"])
    return Exit.OK


async def exchange(address: str, code: str) -> tuple[str, bytes, pb.JoinResponse]:
    """Exchange a code; returns the address, our new key in PEM, and what the machine of the code has answered.

    Raises Failure, Misuse and Unavailable.
    """
    address = address.removeprefix(TLS)
    try:
        host, port = split(address)
        read = JoinCode.read(code)
    except WrongCode as error:
        remedy = "toolcell serve --listen prints one, with the command to copy."
        raise Misuse(f"That is no code: {error}.", remedy) from error
    except ValueError as error:
        raise Misuse(f"{address} is no address.", "Write HOST:PORT, as the machine shows it.") from error
    try:
        guest, key = _certificates.new_guest(read)
    except ImportError as error:
        text = "Joining makes a certificate, and the package for that is not installed."
        raise Failure(Exit.UNAVAILABLE, "missing_extra", text, install_command("remote")) from error
    shown, answer = await _exchange(host, port, guest + key)
    if not _certificates.is_machine(shown, answer.authority, read):
        raise Failure(
            Exit.UNAVAILABLE,
            "wrong_machine",
            f"{address} is not the machine of this code, and nothing was kept.",
            "Something answers in its place, or the code is another machine's.",
        )
    return address, key, answer


async def _exchange(host: str, port: int, identity: bytes) -> tuple[bytes, pb.JoinResponse]:
    """Return the certificate that the machine has shown, in DER, and what it answers; neither is believed yet."""
    with tempfile.NamedTemporaryFile(prefix="toolcell-") as file:  # only this user reads it
        file.write(identity)
        file.flush()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # the code says whose certificate it has to be
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.set_alpn_protocols(["h2"])
        context.load_cert_chain(file.name)
    try:
        link = await open_remote_link(host, port, context, host, "none")
    except (TimeoutError, OSError) as error:
        raise Unavailable(
            f"{host}:{port} cannot be reached: {getattr(error, 'strerror', None) or error or 'no answer'}."
        ) from error
    try:
        answer = await Channel(link).ask(JoiningMethods.Join, pb.JoinRequest(), ANSWER_SECONDS)
        return link.certificate, answer
    except Refused as error:
        if error.reason != "unauthenticated":
            text = f"{host}:{port} does not know this code."
            remedy = "It is good once, and for ten minutes; get another one on that machine."
            raise Unavailable(text, remedy) from error
        raise
    finally:
        await link.close()
