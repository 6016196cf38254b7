"""What an operator does in the first hour with a machine of people: the steps, each run under a real systemd.

What begins with `sudo` is run as root, and all else as the user whose agents call tools. It needs a machine of its own, such
as the second systemd of `make test-systemd`, whose users, units and programs go away with it.
"""

from __future__ import annotations

import os
import pwd
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

__all__ = ["plain", "walk"]

COMMAND_SECONDS_MAX: Final = 240
WAIT_SECONDS_MAX: Final = 60
HOME: Final = Path("/var/lib/ada")
PROGRAMS: Final = Path("/opt/toolcell/bin")
RATES: Final = '''\
from toolcell import tool

TABLE = {"EUR": 1.0, "USD": 1.09}


@tool
def rates(currency: str) -> float:
    """Say what an euro costs.

    Args:
        currency: As in ISO 4217.
    """
    with open("/srv/rates.log", "a") as log:
        print(currency, file=log)
    return TABLE[currency]
'''
WORDS = '''\
from pathlib import Path

from toolcell import tool


@tool
def words(path: str) -> int:
    """Count the words of a file."""
    return len(Path(path).read_text().split())
'''
VARYING: Final = (
    (re.compile(r"\b[csw]-[0-9a-f]{12,}\b"), "c-…"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"), "…"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "…"),
    (re.compile(r"\b\d+(?:\.\d+)? ?(?:ms|s|min|KiB|MiB|GiB)\b"), "…"),
    (re.compile(r"(?m)^(process +)\d+"), r"\1…"),
    (re.compile(r"toolcelld@\d+"), "toolcelld@…"),
    (re.compile(r"(?m)^ *[~^]+\n"), ""),  # where Python points into a line
    (re.compile(r" +"), " "),  # columns are as wide as what is in them
)
"""What is another in each run."""


def plain(page: str) -> str:
    """Return a page without what is another in each run."""
    for pattern, instead in VARYING:
        page = pattern.sub(instead, page)
    return page


@dataclass
class Seat:
    """Two terminals, root's and that of a user, and the page of what was done."""

    page: list[str] = field(default_factory=list[str])

    def says(self, *lines: str) -> None:
        self.page += [*lines, ""]

    def root(self, *lines: str, code: int = 0) -> str:
        """Run commands as root, and show them; what the last one printed."""
        return self._types("$ sudo", lines, code, {"HOME": os.environ["HOME"]}, None, Path.cwd())

    def ada(self, *lines: str, code: int = 0) -> str:
        """Run commands as the user, in the project."""
        user = pwd.getpwnam("ada")
        environment = {
            "HOME": str(HOME), "USER": "ada", "LOGNAME": "ada", "XDG_RUNTIME_DIR": f"/run/user/{user.pw_uid}"
        }  # fmt: skip
        return self._types("$", lines, code, environment, user, HOME / "shop")

    def writes(self, path: str, text: str) -> None:
        """Write a file of the user's, and show it."""
        target = HOME / "shop" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        subprocess.run(["chown", "--recursive", "ada:", str(HOME / "shop")], check=True)
        self.says(f"`{path}` of the project `shop`:", "", "```python", text.rstrip("\n"), "```")

    def _types(
        self,
        prompt: str,
        lines: tuple[str, ...],
        code: int,
        environment: Mapping[str, str],
        user: pwd.struct_passwd | None,
        directory: Path,
    ) -> str:
        said, shown = "", list[str]()
        passed = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        for line in lines:
            done = subprocess.run(
                ["bash", "-c", line],
                cwd=directory,
                env={
                    **passed,
                    "LC_ALL": "C.UTF-8",
                    "COLUMNS": "100",
                    "PATH": f"{PROGRAMS}:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                    **environment,
                },
                user=None if user is None else user.pw_uid,
                group=None if user is None else user.pw_gid,
                extra_groups=None if user is None else [],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=COMMAND_SECONDS_MAX,
                check=False,
            )
            said = "\n".join(line.rstrip() for line in done.stdout.splitlines())
            expected = code if line == lines[-1] else 0
            assert done.returncode == expected, f"{line}: exit {done.returncode}\n{done.stdout}"
            shown += [f"{prompt} {line}", *said.splitlines()]
        self.says("```console", *shown, "```")
        return said


def until(what: str, true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not true():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.05)


def walk(wheel: Path) -> str:
    """Do all steps with a wheel, whose packages pip finds; return the page."""
    subprocess.run(
        ["useradd", "--create-home", "--home-dir", str(HOME), "--shell", "/bin/bash", "ada"], check=True
    )
    subprocess.run(["install", "--directory", "--owner=ada", "--group=ada", str(HOME / "shop")], check=True)
    os.chdir(wheel.parent)
    seat = Seat()
    seat.says(
        "# The operator's first hour",
        "",
        "<!-- Written by `make operators-hour`, which does all of this under a systemd of its own. Do not edit. -->",
        "",
        "From a wheel to a service that is watched, on a machine where Ada's agents call tools.",
        "Everything after a `$` was typed by Ada in her project, and what follows was printed.",
    )
    for step in (_install, _watch, _fail, _find, _explain, _disable, _mend, _look_back):
        step(seat, wheel)
    seat.says("How to go on: [operations](operations.md), task by task.")
    return "\n".join(seat.page)


def _install(seat: Seat, wheel: Path) -> None:
    seat.says(
        "## Install",
        "",
        "An environment that all users may read, and a service that starts with the machine, without a login of Ada's.",
    )
    python = Path(sys.executable).resolve()
    subprocess.run([python, "-m", "venv", str(PROGRAMS.parent)], check=True, timeout=COMMAND_SECONDS_MAX)
    seat.page += ["```console", "$ sudo python3 -m venv /opt/toolcell"]
    seat.root(
        f"/opt/toolcell/bin/pip install --quiet './{wheel.name}[http]'",
        "/opt/toolcell/bin/toolcell service install --user ada",
    )
    del seat.page[seat.page.index("$ sudo python3 -m venv /opt/toolcell") + 1]  # one console for both
    seat.says("What else there is to say of it needs no root, with `/opt/toolcell/bin` on the `PATH`.")
    seat.ada("toolcell service status --user ada")


def _watch(seat: Seat, _: Path) -> None:
    seat.says(
        "## Have it scraped",
        "",
        "A key of Ada's configuration makes the daemon serve its metrics, and health without a token.",
    )
    uid = pwd.getpwnam("ada").pw_uid
    seat.ada("toolcell config set metrics.listen 127.0.0.1:9464")
    seat.root(f"systemctl restart toolcelld@{uid}")
    seat.ada("curl --silent http://127.0.0.1:9464/readyz")
    seat.says(
        "This is all that Prometheus needs, with [the rules and the dashboard](operations.md#metrics):",
        "",
        "```yaml",
        "rule_files: [alerts.yml]",
        "scrape_configs: [{job_name: toolcell, static_configs: [{targets: ['127.0.0.1:9464']}]}]",
        "```",
    )


def _fail(seat: Seat, _: Path) -> None:
    seat.says("## A tool fails", "", "Ada has two tools, and her agents call them.")
    seat.writes(".toolcell/tools/words.py", WORDS)
    seat.writes(".toolcell/tools/rates.py", RATES)
    seat.ada("echo to be or not to be >notes.txt", "toolcell call words path=notes.txt")
    for currency in ("EUR", "USD"):
        seat.ada(f"toolcell call rates currency={currency}", code=1)
    seat.says("The metrics count it, which a rule would tell.")
    said = seat.ada("curl --silent http://127.0.0.1:9464/metrics | grep ^toolcell_calls_total")
    assert 'toolcell_calls_total{outcome="tool_error",tool="rates"} 2.0' in said, said


def _find(seat: Seat, _: Path) -> None:
    seat.says(
        "## Find it",
        "",
        "`toolcell ui` prints the link of [the page](page.md); what it shows is JSON for programs as well.",
    )
    user = pwd.getpwnam("ada")
    environment = {"HOME": str(HOME), "PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": f"/run/user/{user.pw_uid}"}
    page = subprocess.Popen(
        [PROGRAMS / "toolcell", "ui", "8139", "--operate"],
        env=environment, cwd=HOME / "shop", user=user.pw_uid, group=user.pw_gid, extra_groups=[],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert page.stdout is not None
        assert page.stdout.readline().startswith("http://127.0.0.1:8139/#open=")
        seat.page += ["```console", "$ toolcell ui --operate &", "```", ""]
        said = seat.ada(
            'curl --silent -H "Authorization: Bearer $(cat $XDG_RUNTIME_DIR/toolcell/operator.token)"'
            " 'http://127.0.0.1:8139/api/operator/calls?failed=true' |"
            ' python3 -c \'import json, sys; [print(call["tool"], call["kind"]) for call in json.load(sys.stdin)["calls"]]\''
        )
        assert said.split() == ["rates", "tool_error"] * 2, said
    finally:
        page.terminate()
        page.wait(WAIT_SECONDS_MAX)
        assert page.stdout is not None
        page.stdout.close()
    seat.says("At a terminal the same is:")
    seat.ada("toolcell calls --failed --since 1h")


def _explain(seat: Seat, _: Path) -> None:
    seat.says(
        "## Explain it", "", "The outcome names what was refused; `toolcell explain` which rule did it."
    )
    said = seat.ada("toolcell explain rates /srv/rates.log", code=3)
    assert "may neither read nor write /srv/rates.log" in said, said


def _disable(seat: Seat, _: Path) -> None:
    seat.says(
        "## Take it out of use",
        "",
        "Until it is mended no agent sees it, and a call is refused with the reason.",
        "Other tools go on.",
    )
    seat.ada('toolcell disable rates --reason "it writes outside of its project"')
    said = seat.ada("toolcell call rates currency=EUR", code=3)
    assert "it writes outside of its project" in said, said
    seat.ada("toolcell call words path=notes.txt")


def _mend(seat: Seat, _: Path) -> None:
    seat.says("## Mend it", "", "The log goes into the project, which is the tool's to write.")
    seat.ada("sed -i s:/srv/rates.log:rates.log: .toolcell/tools/rates.py", "toolcell check")
    seat.ada("toolcell enable rates", "toolcell call rates currency=USD")
    said = seat.ada("curl --silent http://127.0.0.1:9464/metrics | grep ^toolcell_calls_total")
    assert 'toolcell_calls_total{outcome="ok",tool="rates"} 1.0' in said, said


def _look_back(seat: Seat, _: Path) -> None:
    seat.says(
        "## What is left of it", "", "Decisions stand in the audit, also after a restart, and can be saved."
    )
    uid = pwd.getpwnam("ada").pw_uid
    seat.root(f"systemctl restart toolcelld@{uid}")
    said = seat.ada("toolcell audit", "toolcell calls --tool rates", "toolcell backup saved")
    assert said, said
    assert (HOME / "shop" / "saved").stat().st_mode & 0o777 == 0o600
