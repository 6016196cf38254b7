"""How a client of another machine becomes one: it exchanges a code for a certificate and a ticket.

While a code is good, the daemon trusts certificates that were signed with its key, for this method and no other: a ticket is
for another certificate. The first exchange uses the code up, before anything is signed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import grpc

from toolcell import _certificates
from toolcell._certificates import JoinCode
from toolcell._printable import printable
from toolcell_proto.v1 import toolcell_pb2 as pb
from toolcell_proto.v1 import toolcell_pb2_grpc as rpc
from toolcelld.errors import BadRequest, Refusal, RefusalReason
from toolcelld.remote.certificates import Material, fingerprint
from toolcelld.remote.tickets import Ticket, sign

logger = logging.getLogger(__name__)

PATH: Final = "/toolcell.v1.Joining/Join"
CODE_SECONDS: Final = 600.0
"""To copy it to another machine."""
LEASE_SECONDS: Final = 10.0
TICKET_SECONDS: Final = _certificates.CLIENT_DAYS * 86_400.0 - 60


@dataclass(frozen=True, slots=True)
class _Invitation:
    anchor: bytes
    tenant: str
    directory: str
    until: float  # monotonic


class Invitations:
    """The codes of a daemon that are good, and what they are for.

    The list is replaced as a whole, on the loop; gRPC reads it in its own threads.
    """

    def __init__(self, material: Material, clock: Callable[[], float] = time.monotonic) -> None:
        self._material = material
        self._clock = clock
        self._open: tuple[_Invitation, ...] = ()

    def invite(self, tenant: str, directory: str) -> JoinCode:
        """Return a new code, for one client of a tenant and one directory."""
        code = JoinCode.new(self._material.client_ca.decode())
        until = self._clock() + CODE_SECONDS
        invitation = _Invitation(_certificates.anchor_of(code), tenant, directory, until)
        self._open = (*self._good(), invitation)
        return code

    def take(self, certificate: bytes) -> _Invitation:
        """Use up the code that a certificate was signed with. Raises `Refusal` if there is none, or none any more."""
        good = self._good()
        found = next((each for each in good if _certificates.is_signed(certificate, each.anchor)), None)
        self._open = tuple(each for each in good if each is not found)
        if found is None:
            raise Refusal(
                RefusalReason.UNAUTHENTICATED, "the code was used, or is not good any more; get another one."
            )
        return found

    def _good(self) -> tuple[_Invitation, ...]:
        return tuple(each for each in self._open if each.until > self._clock())

    # What gRPC wants

    def credentials(self) -> grpc.ServerCredentials:
        """Return credentials that trust the authority of clients, and who has a code that is good."""
        return grpc.dynamic_ssl_server_credentials(
            self._configuration(), self._configuration, require_client_authentication=True
        )

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        pair = (self._material.key, self._material.certificate)
        return grpc.ssl_server_certificate_configuration(
            [pair],
            root_certificates=self._material.client_ca + b"".join(each.anchor for each in self._good()),
        )


class Joining(rpc.JoiningServicer):
    """The service for clients that have a code."""

    def __init__(self, material: Material, invitations: Invitations, others: Sequence[str] = ()) -> None:
        self._material = material
        self._invitations = invitations
        self._others = others  # HOST:PORT of those that serve the same

    async def Join(self, request: pb.JoinRequest, context: Any) -> pb.JoinResponse:
        (guest,) = context.auth_context().get("x509_pem_cert") or (b"",)
        invitation = self._invitations.take(guest)
        try:
            return await asyncio.to_thread(self._answer, guest, invitation)
        except (TypeError, ValueError) as error:
            raise BadRequest(f"no certificate can be made: {error}.") from error

    def _answer(self, guest: bytes, invitation: _Invitation) -> pb.JoinResponse:
        material = self._material
        certificate = _certificates.issue(
            guest, invitation.tenant, (material.client_ca, material.authority_key)
        )
        ticket = Ticket(
            node=material.node,
            tenant=invitation.tenant,
            directory=invitation.directory,
            certificate=fingerprint(certificate.decode()),
            lease_seconds=LEASE_SECONDS,
            expires=time.time() + TICKET_SECONDS,
        )
        logger.info("%s has joined, for %s.", invitation.tenant, invitation.directory)
        return pb.JoinResponse(
            node=material.node,
            directory=invitation.directory,
            certificate=certificate.decode(),
            authority=material.client_ca.decode(),
            ticket=sign(material.tickets, ticket),
            others=self._others,
        )


def invitation(address: str, code: JoinCode, directory: str, command: str = "toolcell join") -> str:
    """Return what is shown of a code: the command to type on the other machine."""
    host, _, port = address.rpartition(":")
    reached = f"{socket.gethostname()}:{port}" if host in ("0.0.0.0", "[::]") else address  # noqa: S104
    minutes = f"{CODE_SECONDS / 60:.0f} minutes"
    return f"To use the tools of {printable(directory)} from another machine, once and within {minutes}:\n  {command} {reached} {code}"
