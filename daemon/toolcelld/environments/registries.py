"""The registries that packages of scripts come from, and the credentials that the user has for them.

    the daemon's environment    npm_config_registry or BUN_CONFIG_REGISTRY: the registry of all names without a scope
    the user's ~/.npmrc         registry=, @scope:registry=, and credentials of hosts: //host/path/:_authToken=
    .npmrc of the project       registry= and @scope:registry=, where the user's own settings have that address, too

A project is a stranger's: of its file only addresses count, and only those that the user gave to be used. Its
credentials and its variables (`${NAME}`, which npm replaces) are not read, so it can neither name a host for a token nor
send what a variable has. What is needed of all this for one lock file is written anew, for the cell that installs.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from toolcelld.environments.packages import PackagesError, Setting, read_settings

REGISTRY: Final = "https://registry.npmjs.org/"
"""What bun and npm take where nothing else is configured."""
NO_ADDRESS: Final = "the registry of packages is no address as https://host/ without a password."
VARIABLES: Final = ("npm_config_registry", "NPM_CONFIG_REGISTRY", "BUN_CONFIG_REGISTRY")
CREDENTIALS: Final = ("_authToken", "_auth", "username", "_password")
_SCOPE: Final = re.compile(r"(@[A-Za-z0-9_.~-]{1,214}):registry")
_CREDENTIAL: Final = re.compile(rf"(//[^\s]{{1,1000}}?/?):({'|'.join(CREDENTIALS)})")
_VALUE: Final = re.compile(r"[A-Za-z0-9._~+/=:@%!-]{1,8192}")
"""A credential without what means something in an .npmrc."""
_ADDRESS: Final = re.compile(r"https?://[A-Za-z0-9._~:/?@!&()*+,=%\[\]-]{1,2000}")
"""The same of an address."""
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class Registries:
    """What the installation of one lock file may use."""

    default: str
    scopes: tuple[Setting, ...] = ()  # "@scope:registry" and an address
    credentials: tuple[Setting, ...] = field(default=(), repr=False)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Their entries for a list of hosts."""
        return tuple(dict.fromkeys(_entry(address) for address in self._addresses()))

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must be shown nowhere: the values of credentials, and the passwords in them."""
        values: list[str] = []
        for key, value in self.credentials:
            if key.endswith(":username"):
                continue
            values.append(value)
            if key.endswith(("_auth", "_password")):
                with contextlib.suppress(binascii.Error, ValueError):
                    plain = base64.b64decode(value, validate=True).decode()
                    values.append(plain.partition(":")[2] if key.endswith("_auth") else plain)
        return tuple(value for value in values if value)

    def npmrc(self) -> str:
        """The text of the .npmrc for the program that installs."""
        lines = (("registry", self.default), *self.scopes, *self.credentials)
        return "".join(f"{key}={value}\n" for key, value in lines)

    def _addresses(self) -> Iterable[str]:
        return (self.default, *(address for _, address in self.scopes))


def registries_for(
    environment: Mapping[str, str], lock: bytes = b"", project: Sequence[Setting] = ()
) -> Registries:
    """Return the registries for a lock file.

    Args:
        environment: The daemon's environment.
        lock: The content of the lock file: scopes that it does not mention are left out.
        project: The settings of the `.npmrc` beside it.

    Raises:
        PackagesError: An address or a credential that is needed cannot be used.
    """
    own = read_settings(os.path.join(environment.get("HOME", "/"), ".npmrc"))
    named = next((environment[name] for name in VARIABLES if environment.get(name)), "")
    addresses = [named, *(value for key, value in own if key == "registry" or _SCOPE.fullmatch(key))]
    theirs = [setting for setting in project if _is_known(setting[1], addresses, own)]
    settings = dict([*own, *theirs])
    default = named or settings.get("registry") or REGISTRY
    scopes = tuple(
        (key, address)
        for key, address in settings.items()
        if (scope := _SCOPE.fullmatch(key)) and f"{scope[1]}/".encode() in lock
    )
    for address in (default, *(address for _, address in scopes)):
        _entry(address)
    places = [_place(address) for address in (default, *(address for _, address in scopes))]
    credentials = tuple(
        (key, _credential(key, value, environment))
        for key, value in own
        if (found := _CREDENTIAL.fullmatch(key))
        and any(_is_below(place, found[1].lower()) for place in places)
    )
    return Registries(default, scopes, credentials)


def _is_known(address: str, addresses: Sequence[str], own: Sequence[Setting]) -> bool:
    """Whether the user has named an address, as that of a registry or by a credential for it."""
    if any(address.rstrip("/") == known.rstrip("/") for known in addresses if known):
        return True
    # A credential names no scheme, and without TLS it would be sent in clear.
    return address.startswith("https://") and any(
        _is_below(_place(address), found[1].lower())
        for key, _ in own
        if (found := _CREDENTIAL.fullmatch(key))
    )


def _is_below(place: str, directory: str) -> bool:
    return f"{place.rstrip('/')}/".startswith(f"{directory.rstrip('/')}/")


def _place(address: str) -> str:
    """Return an address as the keys of credentials have it, without its scheme."""
    return address[address.find("//") :].lower() if "//" in address else ""


def _credential(key: str, value: str, environment: Mapping[str, str]) -> str:
    expanded = _VARIABLE.sub(lambda found: environment.get(found[1], found[0]), value)
    if not _VALUE.fullmatch(expanded):
        missing = [name for name in _VARIABLE.findall(value) if name not in environment]
        why = (
            f"the daemon's environment has no {missing[0]}" if missing else "it has characters that none has"
        )
        raise PackagesError(f"{key} in ~/.npmrc cannot be used: {why}.")
    return expanded


def _entry(address: str) -> str:
    """Return the entry of a registry for a list of hosts. Raises `PackagesError`."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise PackagesError(NO_ADDRESS) from error
    if not _ADDRESS.fullmatch(address) or not host or parts.username:
        raise PackagesError(NO_ADDRESS)
    entry = f"[{host}]" if ":" in host else host
    return entry if port is None else f"{entry}:{port}"
