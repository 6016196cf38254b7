"""The Landlock domain of a cell: access to files, TCP ports, and signals to processes outside.

Landlock refuses every right that a ruleset handles and no rule grants, however a path is written: links and directory
descriptors give the same answer. A rule holds the inode that is at a path now, so each worker creates its domain, after
`strict` has set up its mounts.

This module grants what every cell needs to run: programs and libraries of the system, facts about the machine, a few
devices. Access to the user's files comes from the policy only. In `baseline`, /proc shows the worker itself and some
figures of the machine: a rule cannot name processes that do not exist yet, and all of /proc would show the command
lines of other processes. Programs that a tool starts therefore have no /proc/self. /dev/shm is shared by all users, so
only `strict` grants it, where the cell has its own; locks of multiprocessing need it.

Landlock does not check `stat`, `chmod`, `chown`, `utime`, extended attributes, a change of directory
or the connection to a unix socket that has a path; for the last one there is `seccomp`. It cannot
take back a part of what it granted either: `SandboxPolicy.protected` is for the mounts of `strict`.
"""

from __future__ import annotations

import errno
import functools
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from toolcell._paths import is_below
from toolcelld import linux
from toolcelld.files.paths import Place, is_below_any, open_place
from toolcelld.sandbox.policy import SandboxPolicy

# <linux/landlock.h>: rights on files, by the version that brought them
EXECUTE: Final = 1 << 0
WRITE_FILE: Final = 1 << 1
READ_FILE: Final = 1 << 2
READ_DIRECTORY: Final = 1 << 3
REMOVE: Final = 1 << 4 | 1 << 5  # directories and files
MAKE_DEVICE: Final = 1 << 6 | 1 << 11  # character and block
# Directories, files, sockets, pipes, symbolic links
MAKE: Final = 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 12
REFER: Final = linux.LANDLOCK_REFER  # since 2
TRUNCATE: Final = 1 << 14  # since 3
DEVICE_IOCTL: Final = 1 << 15  # since 5

BIND_TCP: Final = 1 << 0  # since 4
CONNECT_TCP: Final = 1 << 1  # since 4
EPHEMERAL: Final = 0
"""The port by which a client leaves the choice to the kernel; without `listen` it serves clients alone."""
ABI_REFER: Final = 2
ABI_TRUNCATE: Final = 3
ABI_TCP: Final = 4
ABI_DEVICE_IOCTL: Final = 5

READ: Final = READ_FILE | READ_DIRECTORY
WRITE: Final = WRITE_FILE | REMOVE | MAKE | REFER | TRUNCATE
GUARDED: Final = WRITE_FILE | MAKE | REFER | TRUNCATE
"""What a guard does in the stead of others: all of writing but removing."""
DEVICE: Final = READ_FILE | WRITE_FILE | DEVICE_IOCTL
OF_FILES: Final = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | DEVICE_IOCTL
"""Rights that a rule on a non-directory may grant; the kernel refuses others."""
EVERYTHING: Final = READ | WRITE | EXECUTE | MAKE_DEVICE | DEVICE_IOCTL

PROGRAMS: Final = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix", "/gnu",
)  # fmt: skip
"""Programs and libraries that packages installed system-wide."""
ETC: Final = "/etc"
ETC_OF_ROOT: Final = tuple(
    f"{ETC}/{name}"
    for name in (
        "alternatives", "bash.bashrc", "bashrc", "ca-certificates", "ca-certificates.conf", "crypto-policies",
        "debian_version", "default/locale", "fonts", "gai.conf", "gitconfig", "group", "host.conf", "hostname", "hosts",
        "inputrc", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias", "localtime", "magic", "mime.types",
        "networks", "npmrc", "nsswitch.conf", "os-release", "passwd", "perl", "pip.conf", "pki/ca-trust", "pki/tls/cert.pem",
        "pki/tls/certs", "pki/tls/openssl.cnf", "profile", "profile.d", "protocols", "python3", "services",
        "shells", "ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone", "xattr.conf",
    )
)  # fmt: skip
"""The part of /etc that cells of root can read: file modes protect shadow, host keys and passwords from other users only.

A JVM, a desktop or TeX needs more of it; a profile's `readable` grants that."""
HOSTS: Final = "/etc/hosts"
RESOLVER: Final = "/etc/resolv.conf"
"""Often a link into /run."""
MACHINE: Final = (
    "/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/kernel/mm/transparent_hugepage",
)  # fmt: skip
"""Read by language runtimes to choose numbers of threads and sizes of memory."""
GROUPS: Final = "/sys/fs/cgroup"
LIMITS_OF_GROUPS: Final = (
    "cpu.max", "memory.max", "memory.high", "cpu.cfs_quota_us", "cpu.cfs_period_us", "memory.limit_in_bytes",
)  # fmt: skip
"""Files of the cell's own control group, which runtimes and databases read as they read `MACHINE`. DuckDB takes a refusal
for a broken disk. What else is below `GROUPS` names the services and processes of the host."""
OWN_PROC: Final = (
    "/proc/self", "/proc/cpuinfo", "/proc/filesystems", "/proc/loadavg", "/proc/meminfo", "/proc/stat", "/proc/sys",
    "/proc/uptime", "/proc/version",
)  # fmt: skip
"""The part of /proc that `baseline` grants; `strict` has its own /proc."""
DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
TERMINAL: Final = "/dev/tty"
"""Opening it without a terminal fails with ENXIO, which programs handle better than EACCES."""
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108  # of the cell alone, in `strict`
KERNELS: Final = ("/proc", "/sys", "/dev")
"""Never granted for writing: below /sys/fs/cgroup a cell could leave its control group."""
UNREACHABLE: Final = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP)
"""Errors for a path that needs no rule, because the cell cannot open it either."""


@dataclass(frozen=True, slots=True)
class PathRule:
    """Rights on a path and on everything below it."""

    path: str
    rights: int
    place: Place | None = None
    """What has to be at the path, which is not followed through links then."""


@dataclass(frozen=True, slots=True)
class Domain:
    """The rights of a cell; everything else is refused as far as the kernel supports it."""

    rules: Sequence[PathRule]
    connect: bool  # whether it may connect to every TCP port
    bind: bool  # whether it may take every TCP port

    def with_processes(self) -> Domain:
        """Return the domain that may read all of /proc, for a guard, which reads what its callers pass."""
        return replace(self, rules=(*self.rules, PathRule("/proc", READ)))

    def guarded(self, directory: str) -> tuple[Domain, tuple[str, ...]]:
        """Return the domain that may neither create nor write in a directory, and all places where it no longer may.

        Rights on a place hold for all that is below it, so they are taken from what is above the directory, too.
        """
        rules: list[PathRule] = []
        taken = [directory]
        for rule in self.rules:
            place = os.path.realpath(rule.path) if rule.place is None and rule.rights & MAKE else rule.path
            if rule.rights & GUARDED and (is_below(directory, place) or is_below(place, directory)):
                taken.append(place)
                rules.append(replace(rule, rights=rule.rights & ~GUARDED))
            else:
                rules.append(rule)
        return replace(self, rules=rules), tuple(place for place in dict.fromkeys(taken))


def domain(policy: SandboxPolicy, needed: Iterable[str], tmpdir: str) -> Domain:
    """Translate a policy into rules. `needed` are the paths of the interpreter and of Toolcell."""
    run = READ | EXECUTE if policy.execute else READ
    apart = policy.enclosure == "strict"
    rules = [*system_rules(execute=policy.execute, apart=apart)]
    rules += [PathRule(path, READ_FILE) for path in limits_of_own_group()]
    found = {place.path: place for place in policy.found}
    rules += [PathRule(path, run, found.get(path)) for path in dict.fromkeys([*needed, *policy.readable])]
    rules += [PathRule(path, run | WRITE, found.get(path)) for path in policy.writable]
    if tmpdir:
        rules.append(PathRule(tmpdir, run | WRITE))
    if apart:
        rules.append(PathRule(SHARED_MEMORY, READ | WRITE))
    if policy.network == "proxy":  # its own, which exist only after the mounts
        rules += [PathRule(RESOLVER, READ), PathRule(HOSTS, READ)]
    if policy.network == "open":
        return Domain(rules, connect=True, bind=policy.listen)
    # A strict cell has its own network namespace, whose loopback serves only the cell and its daemon.
    return Domain(rules, connect=apart, bind=apart)


@functools.cache
def system_rules(*, execute: bool, apart: bool) -> tuple[PathRule, ...]:
    """Return the rules common to all cells of a kind. Cached, so that a zygote checks once which paths exist."""
    etc = ETC_OF_ROOT if os.geteuid() == 0 else (ETC,)
    proc = ("/proc",) if apart else OWN_PROC
    rules = [
        *(PathRule(path, READ | EXECUTE if execute else READ) for path in PROGRAMS),
        *(PathRule(path, READ) for path in (*etc, RESOLVER, *proc, *MACHINE)),
        *(PathRule(path, DEVICE) for path in DEVICES),
        PathRule(TERMINAL, READ_FILE | WRITE_FILE),
    ]
    return tuple(_without_repetition(rule for rule in rules if os.path.exists(rule.path)))


def limits_of_own_group() -> Iterator[str]:
    """Yield the files that say what the control group of this process may use, in both versions of control groups."""
    with suppress(OSError), open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            for controller in {"", "cpu", "memory"}.intersection(controllers.split(",")):
                group = os.path.normpath(f"{GROUPS}/{controller}/{path}")
                if ".." not in path.split("/"):  # it is outside of what is mounted here
                    yield from (f"{group}/{name}" for name in LIMITS_OF_GROUPS)


def _without_repetition(rules: Iterable[PathRule]) -> Iterator[PathRule]:
    """Drop rules whose resolved path is below that of an earlier rule; /bin is usually a link into /usr."""
    seen: list[str] = []
    for rule in rules:
        path = rule.path if rule.path == OWN_PROC[0] else os.path.realpath(rule.path)
        if not is_below_any(path, seen):
            seen.append(path)
            yield rule


def enter(wanted: Domain) -> str:
    """Enter the domain, irrevocably and with all future children; return the name of the layer.

    Raises `ValueError` for a place that no cell may write to, and `OSError` if the kernel has no Landlock.
    """
    abi = linux.landlock_abi()
    if abi == 0:
        raise OSError(
            errno.EOPNOTSUPP,
            "this kernel has no Landlock: it takes Linux 5.13 and `landlock` in the boot parameter lsm=",
        )
    files = EVERYTHING & _known(abi)
    ports = (0 if wanted.connect else CONNECT_TCP) | (0 if wanted.bind else BIND_TCP)
    ports = ports if abi >= ABI_TCP else 0
    ruleset = linux.create_ruleset(
        files=files,
        ports=ports,
        scopes=linux.LANDLOCK_SCOPE_SIGNAL | linux.LANDLOCK_SCOPE_ABSTRACT_SOCKETS
        if abi >= linux.LANDLOCK_ABI_SIGNAL
        else 0,
    )
    try:
        for rule in wanted.rules:
            _grant(ruleset, rule, files)
        if wanted.connect and ports:
            linux.grant_port(ruleset, EPHEMERAL, BIND_TCP)
        linux.enter_ruleset(ruleset)
    finally:
        os.close(ruleset)
    return _name(abi, wanted)


def _known(abi: int) -> int:
    """Return the mask of the file rights that an ABI version supports."""
    unknown = {ABI_REFER: REFER, ABI_TRUNCATE: TRUNCATE, ABI_DEVICE_IOCTL: DEVICE_IOCTL}
    return ~sum(right for since, right in unknown.items() if abi < since)


def _grant(ruleset: int, rule: PathRule, handled: int) -> None:
    try:
        place = os.open(rule.path, os.O_PATH | os.O_CLOEXEC) if rule.place is None else open_place(rule.place)
    except OSError as error:
        if error.errno in UNREACHABLE:
            return
        raise
    try:
        if rule.rights & MAKE:
            _refuse_kernels_own(rule.path, os.readlink(f"/proc/self/fd/{place}"))
        rights = rule.rights & handled
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= OF_FILES
        linux.grant_beneath(ruleset, place, rights)
    finally:
        os.close(place)


def _refuse_kernels_own(path: str, real: str) -> None:
    if is_below(real, SHARED_MEMORY):
        return
    for own in KERNELS:
        if is_below(real, own) or is_below(own, real):
            raise ValueError(
                f"{path} cannot be writable: {own} is the kernel's, and who may write there can leave the cell. "
                "Name the directories that the tool writes to."
            )


def _name(abi: int, domain: Domain) -> str:
    """Name the parts that were applied and those that this kernel does not support."""
    wanted = {
        "truncation": ABI_TRUNCATE,
        **({} if domain.bind else {"tcp" if not domain.connect else "tcp ports of its own": ABI_TCP}),
        "devices": ABI_DEVICE_IOCTL,
        "signals": linux.LANDLOCK_ABI_SIGNAL,
        "abstract sockets": linux.LANDLOCK_ABI_SIGNAL,
    }
    had = ["files", *(what for what, since in wanted.items() if abi >= since)]
    lacking = [what for what, since in wanted.items() if abi < since]
    return f"landlock {abi}: {', '.join(had)}" + (f"; not {', '.join(lacking)}" if lacking else "")
