"""Why a tool may or may not reach a path, a host, a program or a variable, and the line that would change it.

The answers are read from the permit, which is what the cell enforces, and not decided again.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from toolcell._paths import is_below
from toolcelld.catalog.discovery.project_servers import REMEDY, SERVERS_FILE
from toolcelld.catalog.discovery.project_servers import TABLE as SHIPPED
from toolcelld.config.enforcement import beyond, beyond_paths
from toolcelld.config.mistakes import dotted
from toolcelld.config.remedies import CONFIG_FILE, set_command
from toolcelld.config.resolution.access import Access
from toolcelld.config.schema import PROJECT
from toolcelld.policy.decisions.consent import grant_command
from toolcelld.policy.permit import Permit
from toolcelld.sandbox import landlock
from toolcelld.sandbox.guard.names import protected_name
from toolcelld.sandbox.setup import own_places

PRIVATE: Final = "/tmp"  # noqa: S108  # where a strict cell has a directory of its own
_VARIABLE: Final = re.compile(r"[A-Z_][A-Z0-9_]*")
_HOST: Final = re.compile(r"[\w*-]+(\.[\w*-]+)+(:\d+)?|localhost(:\d+)?|\[[0-9a-fA-F:.]+\](:\d+)?")


@dataclass(frozen=True, slots=True)
class Explanation:
    """One answer.

    Attributes:
        kind: "path", "host", "program", "variable", or the name of a setting.
        subject: What was asked about.
        allowed: Whether the tool may have it.
        answer: What it may do with it, as text.
        rule: What decides that.
        remedy: The line or the command that would grant it; empty if it is granted, or cannot be.
    """

    kind: str
    subject: str
    allowed: bool
    answer: str
    rule: str
    remedy: str = ""


def explain(permit: Permit, subject: str, environment: Mapping[str, str]) -> Explanation:
    """Answer whether a tool may have a path, a host, a program or a variable.

    Args:
        permit: The decision for the tool.
        subject: A path has a "/" (relative to the session's directory) or begins with "~"; a variable is in capitals; a
            host has a dot; everything else is a program.
        environment: The variables of the daemon.
    """
    if subject.startswith("~") or "/" in subject or subject in (".", ".."):
        return _path(permit, os.path.join(permit.spec.directory, os.path.expanduser(subject)), subject)
    if _VARIABLE.fullmatch(subject):
        return _variable(permit, subject, environment)
    if _HOST.fullmatch(subject):
        return _host(permit, subject)
    return _program(permit, subject)


def summary(permit: Permit) -> Iterator[Explanation]:
    """Yield everything that a tool is given."""
    spec, policy, access = permit.spec, permit.spec.policy, permit.settings.access
    if permit.consent.held:
        yield _setting(
            "held", ", ".join(permit.consent.held), f"{permit.consent.why}; {permit.consent.command}"
        )
    yield _setting("sandbox", policy.enclosure, _sandbox(access))
    if policy.enclosure != "none":
        for place in policy.writable:
            yield _setting("writable", place, _origin(permit, place))
        for place in policy.readable:
            yield _setting("readable", place, _origin(permit, place))
        for place in policy.protected:
            yield _setting("protected", place, "it is used outside of cells")
    hosts = ", ".join(policy.hosts) or {"none": "none", "open": "all", "proxy": "none"}[policy.network]
    yield _setting("network", hosts, access.origin("network"))
    yield _setting(
        "programs", "yes" if policy.execute else "no", f"PATH {dict(spec.environment).get('PATH', '')}"
    )
    yield _setting("variables", ", ".join(name for name, _ in spec.environment), access.origin("env"))
    secrets = ", ".join(name for name, _ in spec.secrets.places) or "none"
    yield _setting("secrets", secrets, access.origin("secrets"))
    if (engine := spec.file.engine) is not None:
        yield _setting("engine", f"{engine.name}, {engine.program}", f"[source.{spec.file.source}] runtime")
        return
    if spec.is_server:
        said = SERVERS_FILE if spec.file.source == PROJECT else f"[source.{spec.file.source}] share"
        yield _setting("server", f"one for each {spec.file.share}", said)
        return
    yield _setting("interpreter", spec.file.python or "Toolcell's own", f"[source.{spec.file.source}] python")


def _sandbox(access: Access) -> str:
    return f'sandbox = "{access.sandbox}", {access.origin("enclosure")}'


def _setting(kind: str, answer: str, rule: str) -> Explanation:
    return Explanation(kind, "", True, answer, rule)


def _path(permit: Permit, path: str, subject: str) -> Explanation:
    policy, settings, answer = permit.spec.policy, permit.settings, partial(Explanation, "path", subject)
    if policy.enclosure == "none":
        return answer(True, "read and write, as your user may", _sandbox(settings.access))
    try:
        real = os.path.realpath(path)
    except OSError:  # a link that may not be read
        real = os.path.normpath(path)
    rights, by = 0, ""
    for granted in landlock.domain(policy, own_places(), "").rules:
        place = os.path.realpath(granted.path)
        if is_below(real, place):
            rights |= granted.rights
            by = place if len(place) > len(by) else by
    read, write = bool(rights & landlock.READ_FILE), bool(rights & landlock.WRITE_FILE)
    held = _longest(real, policy.protected) if policy.enclosure == "strict" else ""
    if not read:
        private = policy.enclosure == "strict" and is_below(real, PRIVATE)
        remedy = _profile_with(permit, "readable", real)
        rule = f"its {PRIVATE} is private and empty" if private else "no rule opens it"
        return answer(False, "neither read nor write", rule, remedy)
    if held:
        return answer(True, "read, not write", f"{held} is protected: it is used outside of cells")
    if name := protected_name(real, policy):
        rule = f"{name} has a protected name: it would be used outside of cells"
        return answer(True, "read, not write", rule, _profile_with(permit, "writable", name))
    if write:
        return answer(True, "read and write", _origin(permit, by))
    if settings.read_only:
        origin = settings.origin("read_only")
        remedy = "" if origin == "file" else set_command((*_table(permit), "read_only"), False)
        return answer(True, "read, not write", f"read_only = true, {origin}", remedy)
    return answer(True, "read, not write", _origin(permit, by))


def _table(permit: Permit) -> tuple[str, str]:
    """Return the table of the configuration that grants something to a tool: all tools of a server have what it has."""
    file = permit.tool.file
    return ("tool", permit.tool.name) if file.share is None else ("source", file.source)


def _profile_with(permit: Permit, key: str, place: str) -> str:
    if _table(permit) == SHIPPED:
        return REMEDY
    if barred := beyond_paths(permit.settings.enforce, key, place):
        return barred
    lines = (
        f"In {CONFIG_FILE}:\n"
        f"  [profile.mine]\n  {key} = [{_quoted(place)}]\n"
        f'  [{dotted(_table(permit))}]\n  sandbox = "mine"\n'
        "Then: toolcell reload"
    )
    if permit.tool.file.source != PROJECT:
        return lines
    return f"{lines}\nThen, as a rule by name gives a tool of a project no more than it was trusted with:\n  {grant_command(permit.tool.file)}"


def _host(permit: Permit, subject: str) -> Explanation:
    policy, access = permit.spec.policy, permit.settings.access
    rule = f"network, {access.origin('network')}"
    if policy.network == "open":
        return Explanation("host", subject, True, "connect", rule)
    host = subject.partition(":")[0] if not subject.startswith("[") else subject
    for pattern in policy.hosts:
        if fnmatch.fnmatchcase(subject, pattern) or fnmatch.fnmatchcase(host, pattern):
            rule = f"{pattern} in network, {access.origin('network', pattern)}"
            return Explanation("host", subject, True, "connect", rule)
    # Without a port an entry means 80 and 443.
    hosts = list(
        dict.fromkeys((*policy.hosts, host if subject in (f"{host}:80", f"{host}:443") else subject))
    )
    if barred := beyond(permit.settings.enforce, hosts):
        remedy = barred
    elif _table(permit) == SHIPPED:
        remedy = REMEDY
    elif permit.tool.file.source == PROJECT:
        need = f"@tool(network={json.dumps(hosts)})"
        remedy = f"Ask for it in the tool's file, {need}, then:\n  {grant_command(permit.tool.file)}"
    else:
        remedy = set_command((*_table(permit), "network"), hosts)
    return Explanation("host", subject, False, "not connect", rule, remedy)


def _program(permit: Permit, subject: str) -> Explanation:
    spec = permit.spec
    if not spec.policy.execute and spec.policy.enclosure != "none":
        origin = permit.settings.access.origin("programs")
        rule = "its file says that it starts none" if origin == "file" else f"programs = false, {origin}"
        return Explanation("program", subject, False, "not start", rule)
    path = dict(spec.environment).get("PATH", os.defpath)
    found = shutil.which(subject, path=path)
    if found is None:
        place = f"/directory/of/{subject}"
        remedy = (
            set_command(("source", spec.file.source, "programs"), [*spec.file.programs, place])
            if spec.file.share is None
            else f'Have its command begin so: ["env", {json.dumps(f"PATH={place}:{path}")}, …'
        )
        return Explanation("program", subject, False, "not start", f"it is not in PATH, {path}", remedy)
    reach = _path(permit, found, found)
    if not reach.allowed:
        return Explanation("program", subject, False, "not start", f"{found}: {reach.rule}", reach.remedy)
    return Explanation("program", subject, True, "start", f"{found}, by PATH")


def _variable(permit: Permit, subject: str, environment: Mapping[str, str]) -> Explanation:
    spec, access = permit.spec, permit.settings.access
    if any(subject == secret for secret, _ in spec.secrets.places):
        rule = f"secrets, {access.origin('secrets', subject)}"
        return Explanation("variable", subject, True, "read", rule)
    pattern = next((pattern for pattern in access.env if fnmatch.fnmatchcase(subject, pattern)), "")
    rule = f"env, {access.origin('env', pattern)}"
    if subject in dict(spec.environment):
        return Explanation("variable", subject, True, "read", rule)
    absent = f"The daemon was started without {subject}: set it where it is started, then: toolcell stop"
    if pattern:
        rule = "it is granted, and the daemon does not have it"
        return Explanation("variable", subject, False, "not read", rule, absent)
    remedy = set_command((*_table(permit), "env"), [*access.env, subject])
    if _table(permit) == SHIPPED:
        return Explanation("variable", subject, False, "not read", rule, REMEDY)
    if subject not in environment:
        remedy += f"\n{absent}"
    if spec.file.source == PROJECT:
        remedy += f"\nThen: {grant_command(permit.tool.file)}"
    return Explanation("variable", subject, False, "not read", rule, remedy)


def _origin(permit: Permit, place: str) -> str:
    """Return what opens a place."""
    file, access = permit.spec.file, permit.settings.access
    for key, places in (("readable", access.readable), ("writable", access.writable)):
        if place in map(os.path.realpath, places):
            return f"{key}, {access.origin(key)}"
    if place == os.path.realpath(file.directory):
        return "the directory of the tool file"
    if place in map(os.path.realpath, file.programs):
        return f"[source.{file.source}] programs"
    if any(place == os.path.realpath(it) for it in (*permit.spec.policy.writable, permit.spec.project)):
        return "the project of the session"
    if place in permit.spec.policy.readable and any(place == it.path for it in permit.spec.policy.found):
        return "the repository of the session's git worktree"
    return "the system's directories and the interpreter"


def _longest(path: str, places: Sequence[str]) -> str:
    return max((place for place in places if is_below(path, os.path.realpath(place))), key=len, default="")


def _quoted(path: str) -> str:
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'
