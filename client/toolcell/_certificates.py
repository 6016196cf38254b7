"""The certificates of machines that serve others, and of those that join them, on the curve P-256.

A machine that listens has an authority of its own. Who joins it gets a code, which stands for a key: with it the joining
client signs a certificate for a key that it has just made, and the machine lets it in once, because for that time it trusts
who has the key of the code. So joining, too, is TLS with certificates on both sides, and no password is sent.
The rest of the code is the beginning of the authority's digest, by which the client knows the machine.

`cryptography` is loaded where something is made, signed or checked, which no call is.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

SEED_BYTES: Final = 16
"""Of a code that lives for minutes: half of 2^128 tries are not made in that time."""
PIN_BYTES: Final = 16
"""Of the digest of the authority; another authority with the same ones is as hard to find."""
AUTHORITY_DAYS: Final = 3650
MACHINE_DAYS: Final = 3650
CLIENT_DAYS: Final = 90
"""As a ticket at most."""
SKEW: Final = timedelta(days=1)
"""By which the clocks of two machines may differ."""
ORDER_OF_P256: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
GUEST: Final = "joining"
"""The name in the certificate of who joins."""
_CONTEXT: Final = b"toolcell join 1"


class WrongCode(ValueError):
    """A text is no code."""


@dataclass(frozen=True, slots=True, repr=False)
class JoinCode:
    """A code: what its key is made of, and the beginning of the authority's digest."""

    seed: bytes
    pin: bytes

    @classmethod
    def new(cls, authority: str) -> JoinCode:
        """Make a code for the machine of an authority."""
        return cls(os.urandom(SEED_BYTES), pin_of(authority))

    @classmethod
    def read(cls, text: str) -> JoinCode:
        """Read a code as a person copies it. Raises WrongCode."""
        letters = text.replace("-", "").replace(" ", "").upper()
        try:
            data = base64.b32decode(letters + "=" * (-len(letters) % 8))
        except (binascii.Error, ValueError) as error:
            raise WrongCode("it has other letters, or too few") from error
        if len(data) != SEED_BYTES + PIN_BYTES:
            raise WrongCode("it is not of the length of one; copy it whole")
        return cls(data[:SEED_BYTES], data[SEED_BYTES:])

    def __str__(self) -> str:
        letters = base64.b32encode(self.seed + self.pin).decode().rstrip("=").lower()
        return "-".join(letters[at : at + 13] for at in range(0, len(letters), 13))


def pin_of(authority: str) -> bytes:
    """Return the beginning of the digest of a certificate in PEM. Raises ValueError."""
    import ssl

    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(authority)).digest()[:PIN_BYTES]


def new_authority(name: str) -> tuple[bytes, bytes]:
    """Return the certificate and the key of an authority, in PEM."""
    key = _new_key()
    subject = _named(f"{name} authority")
    certificate = _sign(subject, key.public_key(), subject, key, days=AUTHORITY_DAYS, authority=True)
    return _certificate_pem(certificate), _key_pem(key)


def new_machine(name: str, authority: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """Return the certificate and the key of a machine, in PEM, signed by an authority."""
    key = _new_key()
    issuer, signer = _read_pair(authority)
    certificate = _sign(
        _named(name), key.public_key(), issuer.subject, signer, days=MACHINE_DAYS, machine=name
    )
    return _certificate_pem(certificate), _key_pem(key)


def new_client(name: str, authority: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """Return the certificate and the key of a service that dials others, in PEM, signed by an authority."""
    key = _new_key()
    issuer, signer = _read_pair(authority)
    certificate = _sign(_named(name), key.public_key(), issuer.subject, signer, days=MACHINE_DAYS)
    return _certificate_pem(certificate), _key_pem(key)


def anchor_of(code: JoinCode) -> bytes:
    """Return the authority that a machine trusts while a code is good, in PEM."""
    key = _key_of(code)
    subject = _named(_guest_name(code))
    return _certificate_pem(_sign(subject, key.public_key(), subject, key, days=1, authority=True))


def new_guest(code: JoinCode) -> tuple[bytes, bytes]:
    """Return a new key, and its certificate, signed with the key of a code, in PEM: the certificate and the key."""
    key = _new_key()
    issuer = _named(_guest_name(code))
    certificate = _sign(_named(GUEST), key.public_key(), issuer, _key_of(code), days=1)
    return _certificate_pem(certificate), _key_pem(key)


def issue(guest: bytes, tenant: str, authority: tuple[bytes, bytes]) -> bytes:
    """Return a certificate for the key of a guest's certificate, in PEM, signed by an authority.

    Raises ValueError and TypeError for a key of another kind.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

    public_key = x509.load_pem_x509_certificate(guest).public_key()
    if not isinstance(public_key, EllipticCurvePublicKey):
        raise TypeError("the key of the certificate is of another kind")
    issuer, signer = _read_pair(authority)
    return _certificate_pem(_sign(_named(tenant), public_key, issuer.subject, signer, days=CLIENT_DAYS))


def is_machine(shown: bytes, authority: str, code: JoinCode) -> bool:
    """Return whether a machine that was dialled is the one of a code: its authority is, and has signed what it has shown.

    Args:
        shown: The certificate of the connection, in DER.
        authority: The certificate of its authority, in PEM, as the machine says.
        code: The code.
    """
    import ssl

    try:
        known = hmac.compare_digest(pin_of(authority), code.pin)
        return known and is_signed(ssl.DER_cert_to_PEM_cert(shown).encode(), authority.encode())
    except ValueError:
        return False


def is_signed(certificate: bytes, authority: bytes) -> bool:
    """Return whether a certificate was signed by an authority; both are in PEM."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    try:
        x509.load_pem_x509_certificate(certificate).verify_directly_issued_by(
            x509.load_pem_x509_certificate(authority)
        )
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _guest_name(code: JoinCode) -> str:
    return f"{GUEST} {hashlib.sha256(_CONTEXT + code.seed).hexdigest()[:16]}"


def _key_of(code: JoinCode) -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    number = int.from_bytes(hashlib.sha512(_CONTEXT + code.seed).digest(), "big")
    return ec.derive_private_key(number % (ORDER_OF_P256 - 1) + 1, ec.SECP256R1())


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _named(name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _sign(
    subject: x509.Name,
    public_key: EllipticCurvePublicKey,
    issuer: x509.Name,
    signer: EllipticCurvePrivateKey,
    *,
    days: int,
    authority: bool = False,
    machine: str = "",
) -> x509.Certificate:
    """Make a certificate: of an authority, of a machine with this name, or else of a client."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID

    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder(issuer, subject, public_key, x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(
            x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True
        )
        .add_extension(_usage(authority=authority), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if not authority:
        purpose = ExtendedKeyUsageOID.SERVER_AUTH if machine else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    if machine:
        builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(machine)]), critical=False)
    return builder.sign(signer, hashes.SHA256())


def _usage(*, authority: bool) -> x509.KeyUsage:
    from cryptography import x509

    others: dict[str, Any] = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False
    )
    others |= dict.fromkeys(("crl_sign", "encipher_only", "decipher_only"), False)
    return x509.KeyUsage(digital_signature=not authority, key_cert_sign=authority, **others)


def _alternative(name: str) -> x509.GeneralName:
    import ipaddress

    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _read_pair(pair: tuple[bytes, bytes]) -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

    key = serialization.load_pem_private_key(pair[1], None)
    if not isinstance(key, EllipticCurvePrivateKey):
        raise TypeError("the key of the authority is of another kind")
    return x509.load_pem_x509_certificate(pair[0]), key


def _certificate_pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
