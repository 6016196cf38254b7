"""Which registries an installation may use, and that credentials go to those alone that the user has them for."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from toolcelld.environments.packages import PackagesError
from toolcelld.environments.registries import Registries, registries_for

LOCK: Final = b'{"@corp/x": 1, "@other/y": 1, "dep": 1}'
OWN: Final = """; a comment
# another
registry = "https://own.test:8080/npm/"
@corp:registry=https://corp.test/npm/
@unused:registry=https://unused.test/
//own.test:8080/:_authToken=own-token
//corp.test/npm/:_authToken=${CORP_TOKEN}
//unused.test/:_authToken=unused-token
//corp.test/npmother/:_authToken=other-token
"""


def registries(
    top: Path, own: str = OWN, project: str = "", *, lock: bytes = LOCK, **variables: str
) -> Registries:
    """What an installation may use, by the user's file and the project's."""
    (top / ".npmrc").write_text(own)
    settings = [(key, value) for key, _, value in (line.partition("=") for line in project.splitlines())]
    return registries_for({"HOME": str(top), "CORP_TOKEN": "corp-token", **variables}, lock, settings)


def test_the_registry_is_that_of_the_environment_then_of_the_user(tmp_path: Path) -> None:
    plain = registries(tmp_path, "")
    assert plain.hosts == (plain.default.removeprefix("https://").removesuffix("/"),)
    assert plain.credentials == ()
    assert registries(tmp_path, lock=b"").hosts == ("own.test:8080",)
    named = registries(tmp_path, lock=b"", npm_config_registry="https://[::1]:99/")
    assert (named.default, named.hosts) == ("https://[::1]:99/", ("[::1]:99",))
    assert registries(tmp_path, lock=b"", BUN_CONFIG_REGISTRY="https://b.test").default == "https://b.test"


def test_scopes_and_credentials_that_the_lock_file_does_not_need_are_left_out(tmp_path: Path) -> None:
    found = registries(tmp_path)
    assert found.hosts == ("own.test:8080", "corp.test")
    assert set(found.secrets) == {"own-token", "corp-token"}
    assert found.npmrc().splitlines() == [
        "registry=https://own.test:8080/npm/",
        "@corp:registry=https://corp.test/npm/",
        "//own.test:8080/:_authToken=own-token",
        "//corp.test/npm/:_authToken=corp-token",
    ]
    assert registries(tmp_path, lock=b"").secrets == ("own-token",)


def test_a_project_chooses_among_the_registries_that_the_user_has(tmp_path: Path) -> None:
    project = "@other:registry=https://corp.test/npm\n@corp:registry=https://own.test:8080/more/\nregistry=https://corp.test/npm/"
    found = registries(tmp_path, project=project)
    assert found.default == "https://corp.test/npm/"
    assert dict(found.scopes) == {
        "@corp:registry": "https://own.test:8080/more/",
        "@other:registry": "https://corp.test/npm",
    }


@pytest.mark.parametrize(
    "project",
    [
        "registry=https://evil.test/",
        "@corp:registry=https://evil.test/npm/",
        "@corp:registry=https://corp.test.evil.test/npm/",
        "@corp:registry=https://corp.test@evil.test/npm/",
        "@corp:registry=https://corp.test:444/npm/",
        "@corp:registry=https://corp.test/",
        "@corp:registry=http://own.test:8080/other/",  # a token is not sent in clear where the user has not said so
        "@corp:registry=https://evil.test/?${CORP_TOKEN}",
        "@corp:registry=${CORP_TOKEN}",
        "//corp.test/npm/:_authToken=theirs",
        "//evil.test/:_authToken=${CORP_TOKEN}",
        "//evil.test/:_authToken=${CORP_TOKEN}\n@corp:registry=https://evil.test/",
        "_authToken=${CORP_TOKEN}\nalways-auth=true",
        "userconfig=/etc/passwd\nproxy=http://evil.test/\ncafile=/etc/passwd",
    ],
)
def test_nothing_else_of_a_projects_settings_counts(project: str, tmp_path: Path) -> None:
    assert registries(tmp_path, project=project) == registries(tmp_path)


@pytest.mark.parametrize(
    "address",
    [
        "file:///etc",
        "no address",
        "https://",
        "https://me:secret@own.test/",
        "http://own.test:port/",
        "http://a\nb/",
        "https://own.test/${HOME}/",
        "https://own.test/;x",
    ],
)
def test_a_registry_that_is_no_plain_address_is_refused(address: str, tmp_path: Path) -> None:
    with pytest.raises(PackagesError, match="no address") as raised:
        registries(tmp_path, npm_config_registry=address)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("${NOTHING}", "has no NOTHING"),
        ("a secret", "characters"),
        ("secret;x", "characters"),
        ("", "characters"),
    ],
)
def test_a_credential_that_cannot_be_used_is_named_without_its_value(
    value: str, why: str, tmp_path: Path
) -> None:
    own = f"registry=https://own.test/\n//own.test/:_authToken={value}\n"
    with pytest.raises(PackagesError, match=why) as raised:
        registries(tmp_path, own)
    assert "//own.test/:_authToken in ~/.npmrc" in str(raised.value)
    assert "secret" not in str(raised.value)
    unused = f"//unused.test/:_authToken={value}\n"
    assert registries(tmp_path, unused).credentials == ()


def test_passwords_within_credentials_are_secrets_too_and_no_representation_has_them(tmp_path: Path) -> None:
    own = (
        "registry=https://own.test/\n//own.test/:_auth=bWU6c2VjcmV0\n"
        "//own.test/:username=me\n//own.test/:_password=d29yZA==\n"
    )
    found = registries(tmp_path, own)
    assert found.secrets == ("bWU6c2VjcmV0", "secret", "d29yZA==", "word")
    assert "bWU6c2VjcmV0" not in repr(found)
