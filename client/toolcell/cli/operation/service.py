"""`toolcell service install`, `uninstall`, `status` and `logs`: the daemon as a service of systemd.

There are three services: that of a user, run by the user's own manager; that of a user, run by root's (`--user NAME`); and
that of an account for programs (`--system`). The unit is the one of the distribution, with what root's manager does
besides, and with the paths of this installation in place of names that are looked up. A file of that name that this
command has not written is left as it is. That of a user has a socket unit beside it, with which the first connection of
any program starts the daemon.
"""

from __future__ import annotations

import glob
import os
import pwd
import shlex
import site
import sys
from collections.abc import Iterable
from typing import Final, NamedTuple

from toolcell import _paths
from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.exit_codes import Exit, Failure, Misuse
from toolcell.cli._ui.format import clean
from toolcell.cli._ui.prose import print_prose
from toolcell.cli._ui.streams import print_json
from toolcell.cli._ui.tables import print_facts
from toolcell.cli._ui.terminal import Terminal
from toolcell.client._launch.service import (
    INSTANCE,
    OF_ROOT,
    OF_USER,
    TEMPLATE_FILE,
    UNIT,
    ProgramResult,
    systemctl,
)

MARK: Final = "# Written by `toolcell service install`, which writes it again; settings of your own: "
PROGRAMS: Final = {"/usr/bin/env toolcelld": "toolcelld", "/usr/bin/env toolcell ": "toolcell.cli "}
"""What of the unit looks a program up, and the module that is run in its place."""
ACCOUNT: Final = "toolcell"
HOMES: Final = ("/home", "~root", "/run/user")
"""What the system's unit does not see."""
SHOWN: Final = {
    "ActiveState": "state",
    "UnitFileState": "at login",
    "MainPID": "process",
    "NRestarts": "restarts",
    "Result": "result",
    "FragmentPath": "unit",
}
SOCKET: Final = "toolcelld.socket"
SOCKET_STATES: Final = {
    "listening": "the next connection starts the service",
    "running": "a connection starts the service when it has ended",
}
"""Those in which it does what it is for."""


class Service(NamedTuple):
    """One of the three."""

    manager: str
    unit: str  # as systemctl names it
    file: str  # the path of the unit
    socket: str
    addition: str = ""  # the file of the distribution with what the unit has besides
    account: str = ""  # as whom root's manager runs it

    @property
    def files(self) -> list[str]:
        """Every file that is written. Root's manager would bind a name in a directory that others can change."""
        return [self.file] if self.addition else [self.file, os.path.join(os.path.dirname(self.file), SOCKET)]

    @property
    def option(self) -> str:
        """What chooses it on the command line of `toolcell service`."""
        if not self.addition:
            return ""
        return " --system" if self.unit == UNIT else f" --user {shlex.quote(self.account)}"

    @property
    def systemctl(self) -> str:
        """The program that a person types."""
        return "systemctl" if self.addition else "systemctl --user"


async def install(context: CommandContext, user: str | None, *, system: bool) -> Exit:
    """Write the unit, and have systemd start it now and whenever the user logs in, or the machine starts."""
    service = _service(user, system=system)
    _check_rights(service)
    await _manager(service)
    _check_program(service)
    for file in filter(_others, service.files):
        raise _kept(file, f"To replace it: mv {file} {file}.old")
    for file in service.files:
        _write(file, _text(service, file))
    runs = _paths.answers(service.socket) and (await _ask(service, "is-active", service.unit)).code != 0
    _check(await _ask(service, "daemon-reload"))
    _check(await _ask(service, "enable", service.unit))
    if not runs:
        from toolcell.client._launch.service import (
            start,  # as clients do, with their words for what goes wrong
        )

        await start(service.unit, service.manager)
    if context.as_json:
        print_json({"unit": service.file, "started": not runs})
        return Exit.OK
    when = "with the machine" if service.addition else "at each login"
    print_prose(f"{service.file} is written, and started {when}.")
    if runs:
        print_prose("A daemon runs that is no service. To have the service in its place: toolcell stop")
    Terminal(quiet=context.quiet).note(f"{_hint(service)}\n")
    return Exit.OK


def _kept(file: str, remedy: str) -> Failure:
    return Failure(
        Exit.FAILED, "service", f"{file} was not written by this command, and stays as it is.", remedy
    )


def _hint(service: Service) -> str:
    if not service.addition:
        return "To start it with the machine: loginctl enable-linger"
    if service.unit == UNIT:
        return f"Its clients run as {ACCOUNT}, with TOOLCELL_SOCKET={service.socket}"
    return f"Clients of {service.account} find it by themselves."


async def uninstall(context: CommandContext, user: str | None, *, system: bool) -> Exit:
    """Stop the service and delete the unit that was written; that of several users goes with the last of them."""
    service = _service(user, system=system)
    _check_rights(service)
    await _manager(service)
    if _others(service.file):
        unit = service.unit.removesuffix(".service")
        raise _kept(service.file, f"To stop it: {service.systemctl} disable --now {unit}")
    removed = False
    if is_there := _is_ours(service.file):
        others = [file for file in service.files[1:] if _is_ours(file)]
        _check(await _ask(service, "disable", "--now", *map(os.path.basename, others), service.unit))
        if removed := not _other_instances(service):
            for file in (service.file, *others):
                os.unlink(file)
        _check(await _ask(service, "daemon-reload"))
        await _ask(service, "reset-failed", service.unit)
    if context.as_json:
        print_json({"unit": service.file, "removed": removed})
    elif not context.quiet:
        kept = f"{service.unit} is stopped and disabled; {service.file} stays for other users."
        said = f"{service.file} is removed." if removed else kept
        print_prose(said if is_there else "No service is installed.")
    return Exit.OK


async def status(context: CommandContext, user: str | None, *, system: bool) -> Exit:
    """Say how it stands with the service; exits with 69 where it is not active."""
    service = _service(user, system=system)
    await _manager(service)
    values = await _shown(service, service.unit, SHOWN)
    found = {} if service.addition else await _shown(service, SOCKET, ("LoadState", "SubState"))
    socket = found.get("SubState") if found.get("LoadState") == "loaded" else None
    installed = bool(values.get("FragmentPath"))
    active = values.get("ActiveState") == "active"
    if context.as_json:
        print_json(
            {
                "installed": installed,
                "active": active,
                "pid": int(values.get("MainPID") or 0) or None,
                "restarts": int(values.get("NRestarts") or 0),
                "result": values.get("Result") or None,
                "unit": values.get("FragmentPath") or None,
                "socket": socket,
            }
        )
    elif not installed:
        print_prose(f"No service is installed. To install one: toolcell service install{service.option}")
    else:
        names = SHOWN | ({"UnitFileState": "at start"} if service.addition else {})
        rows = [(name, clean(values.get(key) or "-")) for key, name in names.items()]
        print_facts(
            rows if service.addition else [*rows, ("socket", SOCKET_STATES.get(socket or "", socket or "-"))]
        )
    return Exit.OK if active else Exit.UNAVAILABLE


async def _shown(service: Service, unit: str, names: Iterable[str]) -> dict[str, str]:
    answer = await _ask(service, "show", unit, f"--property={','.join(names)}")
    return {key: value for key, _, value in (line.partition("=") for line in answer.out.splitlines())}


def logs(
    context: CommandContext, user: str | None, entries: int | None, *, system: bool, follow: bool
) -> Exit:
    """Become `journalctl`, which shows what the service has logged."""
    service = _service(user, system=system)
    words = ["journalctl", service.manager, "--unit", service.unit, "--lines", str(entries or 100)]
    words += ["--follow"] if follow else ["--no-pager"]
    words += ["--output", "json"] if context.as_json else []
    sys.stdout.flush()
    try:
        os.execvp(words[0], words)
    except OSError as error:
        raise Failure(
            Exit.UNAVAILABLE, "unavailable", f"journalctl cannot be started: {error.strerror}."
        ) from error


def _service(user: str | None, *, system: bool) -> Service:
    """Return the service that the options mean. Raises Failure where there is no such user."""
    if user is not None and system:
        raise Misuse("--user and --system are two services.", "Name one of them.")
    if system:
        return Service(
            OF_ROOT,
            UNIT,
            f"/etc/systemd/system/{UNIT}",
            "/run/toolcell/daemon.sock",
            "system.conf",
            _account(ACCOUNT).pw_name,
        )
    if user is not None:
        found = _account(user)
        socket = f"/run/user/{found.pw_uid}/toolcell/daemon.sock"
        return Service(
            OF_ROOT,
            INSTANCE.format(found.pw_uid),
            TEMPLATE_FILE,
            socket,
            "template.conf",
            found.pw_name,
        )
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Service(OF_USER, UNIT, os.path.join(home, "systemd", "user", UNIT), _paths.socket_path())


def _account(name: str) -> pwd.struct_passwd:
    """Return a user of this machine, who is not root. Raises Failure."""
    try:
        found = pwd.getpwnam(name)
    except (KeyError, ValueError):
        raise Failure(
            Exit.FAILED,
            "service",
            f"There is no user {clean(name)} on this machine.",
            f"To make it: useradd --system --home-dir /var/lib/{ACCOUNT} --shell /usr/sbin/nologin {ACCOUNT}"
            if name == ACCOUNT
            else "",
        ) from None
    if found.pw_uid == 0:
        raise Failure(Exit.FAILED, "service", "A service as root would give tools all that root may.")
    return found


async def _manager(service: Service) -> None:
    """Raise Failure where no manager answers."""
    answer = await _ask(service, "show", "--property=Version")
    if answer.code:
        of = "this machine" if service.addition else "this user"
        raise Failure(
            Exit.UNAVAILABLE,
            "unavailable",
            f"No service manager of {of} answers: {clean(answer.error)}",
            "Without one: toolcell serve",
        )


async def _ask(service: Service, *words: str) -> ProgramResult:
    return await systemctl(*words, manager=service.manager)


def _check(answer: ProgramResult) -> None:
    if answer.code:
        raise Failure(Exit.UNAVAILABLE, "unavailable", f"systemctl: {clean(answer.error)}")


def _check_rights(service: Service) -> None:
    if service.addition and os.geteuid() != 0:
        raise Failure(
            Exit.FAILED,
            "service",
            "Only root installs and removes a service of the machine.",
            f"As root: {shlex.quote(sys.executable)} -m toolcell.cli service install{service.option}",
        )


def _check_program(service: Service) -> None:
    """Raise Failure where the unit does not see its own program."""
    if service.unit == UNIT and service.addition:
        for path in (sys.executable, os.path.realpath(sys.executable), sys.prefix):
            if any(_paths.is_below(path, os.path.expanduser(home)) for home in HOMES):
                raise Failure(
                    Exit.FAILED,
                    "service",
                    f"This installation is in a home, which the system's service does not see: {path}.",
                    "Install Toolcell where all users may read it, as in /opt/toolcell, and have that one write the unit.",
                )


def _other_instances(service: Service) -> bool:
    """Whether others use the same file."""
    wanted = glob.glob(f"{os.path.dirname(service.file)}/*.wants/{INSTANCE.format('*')}")
    return service.file == TEMPLATE_FILE and any(os.path.basename(path) != service.unit for path in wanted)


def _is_ours(path: str) -> bool:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline().startswith(MARK)
    except FileNotFoundError:
        return False


def _others(path: str) -> bool:
    """Whether there is a file that this command has not written."""
    return os.path.lexists(path) and not _is_ours(path)


def _write(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o644)  # clients read it, too
        file.write(text)
    os.replace(f"{path}.new", path)


def _text(service: Service, file: str) -> str:
    """Return a unit with the paths of this installation."""
    name = os.path.basename(file)
    text = _shipped(f"systemd/user/{SOCKET if name == SOCKET else UNIT}")
    if service.addition:
        text = composed(text, _shipped(f"toolcell/systemd/{service.addition}"))
    _, _, settings = text.partition("\n[Unit]\n")
    for program, module in PROGRAMS.items():
        settings = settings.replace(program, f"{_quoted(sys.executable)} -P -m {module}")
    own = f"{service.systemctl} edit {name.removesuffix('.service')}"
    return f"{MARK}{own}\n\n[Unit]\n{settings}"


def composed(unit: str, addition: str) -> str:
    """Return the text of a unit with what another manager does besides, which takes the place of where it is installed."""
    settings, _, _ = unit.partition("\n[Install]\n")
    _, _, more = addition.partition("\n[Unit]\n")
    return f"{settings}\n\n[Unit]\n{more}"


def _shipped(name: str) -> str:
    places = [os.path.join(base, "share", name) for base in (sys.prefix, site.getuserbase())]
    for place in places:
        if os.path.exists(place):
            with open(place, encoding="utf-8") as file:
                return file.read()
    raise Failure(
        Exit.INTERNAL, "service", f"This installation has no {name}: looked in {', '.join(places)}."
    )


def _quoted(path: str) -> str:
    """Return a path as a word of a command of systemd."""
    for letter, written in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        path = path.replace(letter, written)
    return f'"{path}"'
