"""What a file is told that could not import a module: it can be followed as it stands."""

from __future__ import annotations

import dataclasses

from toolcelld.catalog.discovery.sources import ToolFile
from toolcelld.catalog.hooks import SOURCE
from toolcelld.environments.requirements import in_file
from toolcelld.policy.decisions.consent import COMPLETE
from toolcelld.policy.interpreters import missing_module

BLOCK = b'# /// script\n# dependencies = ["httpx<1"]\n# ///\nimport yaml\n'
FILE = ToolFile("/p/a.py", "user", "global", "a", b"import yaml\n", "d", "/p")


def told(file: ToolFile, module: str = "yaml") -> list[str]:
    return missing_module(file, module, None, "/home/ada", consent=COMPLETE).splitlines()


def test_a_file_with_packages_of_its_own_is_told_its_list_with_one_more() -> None:
    first, line = told(dataclasses.replace(FILE, content=BLOCK))
    assert first == "It ran with httpx<1. To have another package, name it in the file's script block:"
    followed = BLOCK.replace(b'# dependencies = ["httpx<1"]', line.strip().encode())
    assert in_file(followed).packages == ("PyYAML", "httpx<1")


def test_a_file_without_a_block_is_told_a_whole_one() -> None:
    lines = told(FILE)
    assert lines[0].startswith(
        "It ran with Toolcell's own Python. To have the package installed, begin the file"
    )
    followed = "\n".join(line.strip() for line in lines[1:4]).encode() + b"\nimport yaml\n"
    assert in_file(followed).packages == ("PyYAML",)
    assert lines[4:] == [
        "Or name an environment: toolcell config set source.user.python /path/of/its/bin/python"
    ]
    asked = told(dataclasses.replace(FILE, requires=("httpx",)))
    assert (asked[0][:19], asked[1:]) == ("It ran with httpx. ", lines[1:])


def test_a_hook_is_told_no_setting_of_a_source_that_it_has_not() -> None:
    assert told(dataclasses.replace(FILE, source=SOURCE)) == told(FILE)[:4]


def test_what_no_package_brings_is_not_told_as_one() -> None:
    assert told(FILE, "_tkinter")[0].startswith("_tkinter is a part of Python that Toolcell's own Python was")
    assert told(FILE, "os.nothing") == []
