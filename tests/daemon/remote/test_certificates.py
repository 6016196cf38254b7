"""What a daemon listens with is whole, safe and fits together, or it does not start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from tests.pki import KEY, Authority

from toolcelld.config.load import Config
from toolcelld.config.mistakes import ConfigError
from toolcelld.config.schema import ListenSection
from toolcelld.remote.certificates import NAMES, PLACE, material


def changed(name: str, change: Callable[[Path], object]) -> Callable[[Path], None]:
    def apply(state: Path) -> None:
        change(state / PLACE / NAMES[name])

    return apply


def give_password(path: Path) -> None:
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    form = serialization.PrivateFormat.PKCS8
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, form, serialization.BestAvailableEncryption(b"secret"))
    )


def make_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


UNSAFE: dict[str, tuple[Callable[[Path], None], str]] = {
    "no key": (changed("key", Path.unlink), "key: .*No such file"),
    "no certificate": (changed("certificate", Path.unlink), "listen.certificate: .*No such file"),
    "no authority": (changed("client_ca", Path.unlink), "listen.client_ca: .*No such file"),
    "no tickets": (changed("tickets", Path.unlink), "listen.tickets: .*No such file"),
    "a key for all to read": (changed("key", lambda path: path.chmod(0o644)), "open to others"),
    "tickets for all to read": (changed("tickets", lambda path: path.chmod(0o640)), "open to others"),
    "an authority for all to write": (changed("client_ca", lambda path: path.chmod(0o666)), "open to others"),
    "a short key of tickets": (changed("tickets", lambda path: path.write_bytes(b"x" * 31)), "less than 32"),
    "an empty authority": (changed("client_ca", lambda path: path.write_bytes(b"")), "is empty"),
    "an authority that is none": (
        changed("client_ca", lambda path: path.write_bytes(b"x")),
        "no certificate",
    ),
    "a client as the authority": (
        changed("client_ca", lambda path: path.write_bytes(Authority().identity("x").certificate)),
        "no certificate of an authority",
    ),
    "the key of another": (
        changed("key", lambda path: path.write_bytes(Authority().identity("x").key)),
        "is not the key of",
    ),
    "a key with a password": (changed("key", give_password), "has a password"),
    "a certificate that is none": (changed("certificate", lambda path: path.write_bytes(b"x")), "not in PEM"),
    "a directory": (changed("key", make_directory), "cannot be read"),
}


def test_what_is_whole_is_taken(tmp_path: Path) -> None:
    identity = Authority().write(tmp_path)
    found = material(Config(), "localhost:0", str(tmp_path))
    named = material(Config(), "localhost:0", str(tmp_path), node="n-1")
    assert named is not None
    assert named.node == "n-1"
    with pytest.raises(ConfigError, match="should be a name"):
        material(Config(), "localhost:0", str(tmp_path), node="../n")
    assert found is not None
    assert (found.key, found.certificate, found.tickets) == (identity.key, identity.certificate, KEY)
    assert "KEY" not in repr(found)


def test_without_an_address_nothing_is_read(tmp_path: Path) -> None:
    assert material(Config(), "", str(tmp_path)) is None


@pytest.mark.parametrize("fault", UNSAFE)
def test_what_is_not_whole_or_not_safe_is_refused(tmp_path: Path, fault: str) -> None:
    change, said = UNSAFE[fault]
    Authority().write(tmp_path)
    change(tmp_path)
    with pytest.raises(ConfigError, match=said):
        material(Config(), "127.0.0.1:0", str(tmp_path))


@pytest.mark.parametrize(
    "address",
    ["7443", "localhost", "host:port", "host:65536", "::1:7443", "a b:1", "unix:/x:1", ":1", "*:1", "a:1\n"],
)
def test_an_address_that_is_none_is_refused(tmp_path: Path, address: str) -> None:
    Authority().write(tmp_path)
    with pytest.raises(ConfigError, match="should be HOST:PORT"):
        material(Config(), address, str(tmp_path))


def test_the_configuration_names_the_files(tmp_path: Path) -> None:
    Authority().write(tmp_path)
    places = {key: str(tmp_path / PLACE / name) for key, name in NAMES.items()}
    listen = ListenSection.model_validate({"address": "10.0.0.5:7443", "node": "build-3", **places})
    found = material(replace(Config(), listen=listen), "", "/nowhere")
    assert found is not None
    assert (found.address, found.node) == ("10.0.0.5:7443", "build-3")
