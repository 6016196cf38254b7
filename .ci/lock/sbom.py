"""Turns the locked packages that an installation brings into an SBOM: `python .ci/lock/sbom.py <PINS >toolcell.cdx.json`.

Reads pins with hashes as `uv pip compile` prints them. There is no time and no serial number in what it prints, so the
wheel stays the same to the byte. A package has a file for each platform, so its hashes are those of its distributions,
not of the component.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any, Final

__all__ = ["sbom"]

PIN: Final = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>[^ ]+)(?P<rest>(?:.*\\\n)*.*)", re.MULTILINE)
HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def sbom(pins: str) -> dict[str, Any]:
    """Return the CycloneDX document of these pins."""
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "library", "name": "toolcell", "purl": "pkg:pypi/toolcell"}},
        "components": [_component(**pin.groupdict()) for pin in PIN.finditer(pins)],
    }


def _component(name: str, version: str, rest: str) -> dict[str, Any]:
    purl = f"pkg:pypi/{name}@{version}"
    hashes = [{"alg": "SHA-256", "content": content} for content in HASH.findall(rest)]
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "scope": "required",
        "purl": purl,
        "externalReferences": [{"type": "distribution", "url": purl, "hashes": hashes}],
    }


if __name__ == "__main__":
    print(json.dumps(sbom(sys.stdin.read()), indent=1))
