"""Certificates for tests: an authority, and what it signs, on elliptic curves, which take no time."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from toolcelld.remote.certificates import NAMES, PLACE, fingerprint

NODE = "node-1"
KEY = bytes(range(32))
"""What tickets are signed with."""


@dataclass(frozen=True)
class Identity:
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.certificate.decode())

    def written(self, directory: Path) -> str:
        """The path of one file with both."""
        path = directory / f"{self.fingerprint}.pem"
        path.write_bytes(self.key + self.certificate)
        path.chmod(0o600)
        return str(path)


class Authority:
    """Signs certificates."""

    def __init__(self, name: str = "authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        self.certificate = self._signed(_builder(self._name, self._key.public_key(), authority=True))

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def identity(self, name: str, *, days: float = 1) -> Identity:
        """A certificate for a name; of negative days an expired one."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._signed(_builder(_named(name), key.public_key(), days=days, alternative=name))
        return Identity(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))

    def _signed(self, builder: x509.CertificateBuilder) -> x509.Certificate:
        return builder.issuer_name(self._name).sign(self._key, hashes.SHA256())

    def write(self, state: Path, *, node: str = NODE) -> Identity:
        """Lay out what a daemon needs to listen, where it looks by default; returns the daemon's identity."""
        place = state / PLACE
        place.mkdir(parents=True, mode=0o700, exist_ok=True)
        identity = self.identity(node)
        content = {
            "certificate": identity.certificate,
            "key": identity.key,
            "client_ca": self.pem,
            "tickets": KEY,
        }
        for key, data in content.items():
            (place / NAMES[key]).write_bytes(data)
            (place / NAMES[key]).chmod(0o600)
        return identity

    def context(self, identity: Path | str | None) -> ssl.SSLContext:
        """What a client connects with."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=self.pem.decode())
        context.set_alpn_protocols(["h2"])
        if identity is not None:
            context.load_cert_chain(identity)
        return context


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    name: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    *,
    days: float = 1,
    alternative: str = "",
    authority: bool = False,
) -> x509.CertificateBuilder:
    end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(end - datetime.timedelta(days=abs(days) + 1))
        .not_valid_after(end)
        .add_extension(
            x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True
        )
        .add_extension(
            x509.KeyUsage(
                digital_signature=not authority,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=authority,
                crl_sign=authority,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
    )
    if alternative:
        names = [x509.DNSName(alternative), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
