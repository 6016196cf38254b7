"""The sections of the configuration, as frozen models.

A key keeps its TOML name as an alias, the field carries the unit: `timeout` is `timeout_seconds`.
Whether a key was said at all is `model_fields_set`, which tells `memory = "off"` from silence.
`Declared` checks what a tool's file says with the same fields, so the two vocabularies cannot part.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Final, Literal, Self, TypeAlias, cast, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    model_validator,
)

from toolcell._units import optional, parse_bytes, parse_count, parse_open_files, parse_seconds
from toolcelld.config.hosts import ports_of
from toolcelld.config.permissions import NO_PATTERN, RULES_MAX, Action, Rules, any_rules, is_pattern
from toolcelld.config.protected import NAMES_MAX, PROTECTED, protected_name
from toolcelld.flavours import OTHER_FLAVOURS, FlavourName, Notice

Isolation = Literal["worker", "session", "call"]
Keep = Literal["head", "tail", "middle"]
Trust = Literal["confined", "ask", "all"]
Share = Literal["project", "user", "session"]
OnAbort = Literal["replace", "keep"]
PackName = Literal["builtin", "squad"]
PACKS: tuple[PackName, ...] = get_args(PackName)
"""The packs of tools that ship with Toolcell; each is a source of that name."""
PROJECT: Final = "project"
"""The source of the tools of projects; every other one is the user's own."""
BUILT_IN_SOURCES = (PROJECT, "user", *PACKS)

HOSTS_MAX = 256  # of one list; a tool that needs more needs the network
PORTS_MAX = 64  # of one list; each is a listener in the cell
_HOST = re.compile(
    r"(?:\*\.)?[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?(?::\d{1,5})?|[0-9A-Fa-f:.]{2,45}|\[[0-9A-Fa-f:.]{2,45}\](?::\d{1,5})?"
)
_SANDBOX = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
PRIORITY_MAX = 100
SECRET_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_*?][A-Za-z0-9_*?]*")


Priority: TypeAlias = Annotated[int, Field(strict=True, ge=0, le=PRIORITY_MAX)]


def strings(what: str, pattern: re.Pattern[str] | None = None) -> Callable[[object], tuple[str, ...]]:
    """Return a validator for lists of strings that match a pattern; `what` is their name in messages."""

    def parsed(value: object) -> tuple[str, ...]:
        items = cast("list[object]", value) if isinstance(value, list | tuple) else [None]
        strings = tuple(item for item in items if isinstance(item, str) and item)
        if len(strings) != len(items):
            raise ValueError(f'should be a list of {what}; write ["…", "…"]')
        for string in strings:
            if pattern is not None and not pattern.fullmatch(string):
                raise ValueError(f'should be a list of {what}, and "{string[:60]}" is none')
        return strings

    return parsed


def _hosts(value: object) -> bool | tuple[str, ...]:
    if isinstance(value, list | tuple):
        for item in cast("Sequence[object]", value):
            if isinstance(item, str) and "://" in item[:60]:
                host = item.partition("://")[2].partition("/")[0]
                raise ValueError(f'has an address, "{item[:60]}"; write its host alone: "{host[:60]}"')
        hosts = strings("host names", _HOST)(cast("object", value))
        if len(hosts) > HOSTS_MAX:
            raise ValueError(f"has more than {HOSTS_MAX} host names; write true for all")
        if len(ports_of(hosts)) > PORTS_MAX:
            raise ValueError(f"has more than {PORTS_MAX} ports; write true for all")
        # An empty list is no network, and never all of it.
        return tuple(dict.fromkeys(host.lower() for host in hosts)) or False
    if isinstance(value, bool):
        return value
    raise ValueError("should be a list of host names, true for all of them, or false")


def _sandbox(value: object) -> str:
    if isinstance(value, str) and _SANDBOX.fullmatch(value):
        return value
    raise ValueError('should be "auto", "strict", "baseline", "none" or the name of a [profile.…]')


def _path(value: str) -> str:
    if "\0" in value or not value:
        raise ValueError("is no path")
    return os.path.expanduser(value)


def _absolute(value: str) -> str:
    if not os.path.isabs(value):
        raise ValueError('should be an absolute path; begin it with "/" or "~/"')
    return os.path.abspath(value)


def _at_most_an_hour(value: float) -> float:
    if value > 3600:
        raise ValueError('is longer than an hour; write "1h" or less')
    return value


def _at_least_a_day(value: float | None) -> float | None:
    if value is not None and value < 86_400:
        raise ValueError('is less than a day; write "1d" or more, or "off"')
    return value


Seconds = Annotated[float, BeforeValidator(parse_seconds)]
Bytes = Annotated[int, BeforeValidator(parse_bytes)]
Count = Annotated[int, BeforeValidator(parse_count)]
SecondsLimit = Annotated[float | None, BeforeValidator(optional(parse_seconds))]
BytesLimit = Annotated[int | None, BeforeValidator(optional(parse_bytes))]
CountLimit = Annotated[int | None, BeforeValidator(optional(parse_count))]
OpenFilesLimit = Annotated[int | None, BeforeValidator(optional(parse_open_files))]
Names = Annotated[
    tuple[str, ...], BeforeValidator(strings("names of environment variables", _ENVIRONMENT_NAME))
]
FilePath = Annotated[str, AfterValidator(_path)]
Hosts = Annotated[bool | tuple[str, ...], BeforeValidator(_hosts)]
SecretNames = Annotated[tuple[str, ...], BeforeValidator(strings("names of secrets", SECRET_NAME))]


def _protected(value: object) -> tuple[str, ...]:
    names = tuple(map(protected_name, strings("names")(value)))
    if len(names) > NAMES_MAX:
        raise ValueError(f"has more than {NAMES_MAX} names")
    return names


ProtectedNames = Annotated[tuple[str, ...], BeforeValidator(_protected)]
Sandbox = Annotated[str, BeforeValidator(_sandbox)]
Places = Annotated[
    tuple[Annotated[FilePath, AfterValidator(_absolute)], ...], BeforeValidator(strings("paths"))
]
EnforcedRules = Annotated[Rules, BeforeValidator(any_rules)]


class Section(BaseModel):
    """A table whose keys are all known."""

    # The validators are made when a file is read: making all of them takes a tenth of the start of the daemon.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @classmethod
    def default(cls) -> Self:
        """Return the section of a file that says nothing."""
        return cls.model_construct()


class LimitKeys(Section):
    """The eleven limits; unset says nothing, None is "off"."""

    timeout_seconds: SecondsLimit = Field(default=None, alias="timeout")
    queue_seconds: SecondsLimit = Field(default=None, alias="queue")
    cpu_seconds: SecondsLimit = Field(default=None, alias="cpu")
    idle_seconds: SecondsLimit = Field(default=None, alias="idle")
    memory_bytes: BytesLimit = Field(default=None, alias="memory")
    processes: CountLimit = None
    open_files: OpenFilesLimit = None
    file_size_bytes: BytesLimit = Field(default=None, alias="file_size")
    disk_bytes: BytesLimit = Field(default=None, alias="disk")  # in the private temporary directory
    output_lines: CountLimit = None
    output_bytes: BytesLimit = None


class ToolKeys(LimitKeys):
    """What both a tool's file and [tool.NAME] may say; unset says nothing."""

    isolation: Isolation = "worker"
    output: Keep = "head"
    read_only: StrictBool = False
    destructive: StrictBool = False
    idempotent: StrictBool = False


class Declared(ToolKeys):
    """What a tool's file says with the decorator, beside its name and description.

    `network` and `secrets` are what it needs; whether it gets them is not for the file to say.
    `sandbox` can only be more than what was configured, and `programs` only less.
    """

    programs: StrictBool = True
    network: Hosts = False
    secrets: SecretNames = ()
    sandbox: Literal["baseline", "strict"] = "baseline"
    plugin: Annotated[str, Field(max_length=200)] = ""  # the name of the plugin file that it is declared in
    ends_turn: StrictBool = False  # whether its success ends the turn of an agent that can do so
    title: Annotated[str, Field(max_length=200)] = ""  # for people, in the list of tools of their agent


class ToolSection(ToolKeys):
    """[tool.NAME]: what the person who runs the daemon says about a tool."""

    env: Names = ()
    sandbox: Sandbox = "auto"
    network: Hosts = False
    secrets: SecretNames = ()
    concurrency: CountLimit = None  # calls at once, of all sessions together; the rest wait, up to `queue`
    enabled: StrictBool = True
    # Whether it replaces a built-in tool of its name, ours or its agent's
    overrides_builtin: StrictBool = False
    notice: Notice = "plain"


class DaemonSection(Section):
    """[daemon]: the daemon itself."""

    workers: Count = 64  # alive at once, all tools together
    calls_per_session: Count = 8  # the rest wait, up to `queue`
    sessions: Count = 1000  # open at once; each costs about 40 KiB
    # Arguments of calls that have not ended, and outcomes that the client has not acknowledged.
    retained_per_session_bytes: Bytes = Field(default=256 * 2**20, alias="retained_per_session")
    retained_bytes: Bytes = Field(default=2**30, alias="retained")  # the same, of all sessions
    worker_idle_seconds: Seconds = Field(default=300.0, alias="worker_idle")
    abort_grace_seconds: Seconds = Field(default=2.0, alias="abort_grace")
    # A session opens with what is described by then; the rest of its tools comes as a change.
    open_wait_seconds: Seconds = Field(default=2.0, alias="open_wait")
    # For importing a tool file and what it imports: pandas takes one second, a cold disk several.
    load_timeout_seconds: Seconds = Field(default=10.0, alias="load_timeout")
    # For clients that name none; the contract allows an hour at most.
    linger_seconds: Annotated[Seconds, AfterValidator(_at_most_an_hour)] = Field(default=10.0, alias="linger")
    # Directories, each by its exact path, that may belong to other users or be written by them: as a mount of a container.
    safe_directories: Places = ()
    # Other systems whose directories of tools are looked in.
    flavours: tuple[FlavourName, ...] = OTHER_FLAVOURS
    # Counts of references that no worker writes to: what cells share stays shared. CPython 3.12 and 3.13 only.
    immortal_objects: StrictBool = True
    # Tools that ship with Toolcell; each pack is a source of its name.
    packs: tuple[PackName, ...] = ()


class DefaultsSection(LimitKeys):
    """[defaults]: what holds where neither [tool.NAME] nor the file says anything."""

    timeout_seconds: SecondsLimit = Field(default=120.0, alias="timeout")
    queue_seconds: SecondsLimit = Field(default=30.0, alias="queue")
    memory_bytes: BytesLimit = Field(default=512 * 2**20, alias="memory")
    processes: CountLimit = 64
    open_files: OpenFilesLimit = 1024
    file_size_bytes: BytesLimit = Field(default=2**30, alias="file_size")
    # In `strict` the directory is made of memory, which half of the default memory can hold.
    disk_bytes: BytesLimit = Field(default=256 * 2**20, alias="disk")
    output_lines: CountLimit = 2000
    output_bytes: BytesLimit = 50_000
    isolation: Isolation = "worker"
    output: Keep = "head"
    notice: Notice = "plain"  # the words that say that an output was truncated
    env: Names = ("PATH", "HOME", "LANG", "LC_*", "TZ")
    sandbox: Sandbox = "auto"
    protected: ProtectedNames = PROTECTED  # read-only in a project, beside .git, .toolcell and .atomic


class MaxSection(LimitKeys):
    """[max]: the most that a file may ask for; what is not here has no such bound."""

    timeout_seconds: SecondsLimit = Field(default=3600.0, alias="timeout")
    queue_seconds: SecondsLimit = Field(default=3600.0, alias="queue")
    memory_bytes: BytesLimit = Field(default=4 * 2**30, alias="memory")
    processes: CountLimit = 1024
    open_files: OpenFilesLimit = 65_536
    file_size_bytes: BytesLimit = Field(default=64 * 2**30, alias="file_size")
    disk_bytes: BytesLimit = Field(default=16 * 2**30, alias="disk")
    output_lines: CountLimit = 100_000
    output_bytes: BytesLimit = 4 * 2**20  # about a million tokens; no model reads more


SOURCES_MAX = 64  # of [enforce]; a file of root names some directories


class EnforceSection(Section):
    """[enforce]: what no user can loosen, in the file of root alone; a key that is not there holds nobody."""

    trust: Trust = "all"
    sandbox: Literal["none", "baseline", "auto", "strict"] = "none"  # the weakest
    network: Hosts = True  # the most that any tool gets
    readable: Places = ()  # the most that profiles open, with all below
    writable: Places = ()
    sources: (
        Annotated[
            tuple[str, ...], BeforeValidator(strings("names of sources")), Field(max_length=SOURCES_MAX)
        ]
        | None
    ) = None  # where tools come from; no others are used
    permissions: EnforcedRules = ()  # rules that users can be stricter than
    max: LimitKeys = LimitKeys.default()  # of every limit, also of those that users' tables say


class SpillSection(Section):
    """[spill]: outputs beyond what the model reads."""

    bytes_per_call: Bytes = 64 * 2**20
    quota_bytes: Bytes = Field(default=2**30, alias="quota")
    retention_seconds: Seconds = Field(default=7 * 86_400.0, alias="retention")


class RecordsSection(Section):
    """[records]: calls, events and decisions, kept over restarts."""

    enabled: StrictBool = True
    retention_seconds: Seconds = Field(default=30 * 86_400.0, alias="retention")
    rows: Count = 1_000_000  # calls; and as many events
    bytes_max: Bytes = Field(default=512 * 2**20, alias="bytes")
    arguments: StrictBool = False  # also of results; secrets are redacted


LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def listen_address(value: str) -> tuple[str, int]:
    """Return the host and the port of an address of the loopback interface. Raises ValueError."""
    host, _, port = value.rpartition(":")
    if host not in LOOPBACK or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise ValueError(
            'should be an address of this machine, "127.0.0.1:9464", or the path of a socket, "/…"'
        )
    return host.strip("[]"), int(port)


def _listen(value: str) -> str:
    value = os.path.expanduser(value)
    if value.startswith("/"):
        if "\0" in value or len(value.encode()) > SOCKET_BYTES_MAX:
            raise ValueError(f"is longer than a socket's path may be, {SOCKET_BYTES_MAX} bytes")
    elif value:
        listen_address(value)
    return value


SOCKET_BYTES_MAX = 107  # `sun_path` of Linux


class MetricsSection(Section):
    """[metrics]: figures for Prometheus, and health, over HTTP. Every user of this machine can read what TCP serves."""

    listen: Annotated[str, AfterValidator(_listen)] = ""  # "127.0.0.1:9464" or "/path"; empty: none


def tcp_address(value: str) -> str:
    """Return an address of a network as it is. Raises ValueError for one that is none."""
    found = _TCP.fullmatch(value)
    if found is None or int(found[1]) > 65_535:
        raise ValueError('should be HOST:PORT, such as "10.0.0.5:7443" or "[::1]:7443"')
    return value


_TCP = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\]):([0-9]{1,5})")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}(?:\.[A-Za-z0-9_-]{1,63}){0,8}")


def _tcp(value: str) -> str:
    return tcp_address(value) if value else value


def node_name(value: str) -> str:
    """Return the name of a node as it is. Raises ValueError for a text that is none."""
    if value and not _NODE.fullmatch(value):
        raise ValueError("should be a name of letters, digits, dots, dashes and underscores")
    return value


class ListenSection(Section):
    """[listen]: clients of other machines, over TCP with mutual TLS 1.3 and a ticket for each; read at the start."""

    address: Annotated[str, AfterValidator(_tcp)] = ""  # "HOST:PORT"; empty: none
    node: Annotated[str, AfterValidator(node_name)] = ""  # empty: the name of the machine
    # None: below the state directory
    certificate: Annotated[FilePath, AfterValidator(_absolute)] | None = None
    key: Annotated[FilePath, AfterValidator(_absolute)] | None = None
    client_ca: Annotated[FilePath, AfterValidator(_absolute)] | None = None
    tickets: Annotated[FilePath, AfterValidator(_absolute)] | None = None
    sessions: Count = 50  # open at once with one ticket
    # Whether operators of the cluster may look at calls, sessions, workers and logs
    operators: StrictBool = False


LISTED_MAX = 64  # files that a source lists; the directory of each is hashed and watched


def _mcp_command(value: object) -> tuple[str, ...]:
    words = strings("words of a command")(value)
    if not words:
        raise ValueError('names no program; write ["PROGRAM", "ARGUMENT", …]')
    if len(words) > WORDS_MAX or any(
        "\0" in word or len(word.encode(errors="replace")) > WORD_BYTES_MAX for word in words
    ):
        raise ValueError(
            f"is no command: it has at most {WORDS_MAX} words of {WORD_BYTES_MAX} bytes, without NUL"
        )
    return words


WORDS_MAX = 256  # of the command of a server; the longest that was seen has thirty
WORD_BYTES_MAX = 4096  # as of a path


class SourceSection(Section):
    """[source.NAME]: a directory of tools or an MCP server, its interpreter, and what passes through to its tools."""

    directory: Annotated[FilePath, AfterValidator(_absolute)] | None = None
    files: Annotated[
        tuple[Annotated[FilePath, AfterValidator(_absolute)], ...],
        BeforeValidator(strings("tool files")),
        Field(max_length=LISTED_MAX),
    ] = ()  # beside or in place of `directory`
    python: FilePath | None = None  # relative: to the session's directory in `project`, else to `directory`
    programs: Annotated[tuple[FilePath, ...], BeforeValidator(strings("directories"))] = ()
    # The engine of its TypeScript; the first that is there by default
    runtime: Literal["bun", "node"] | None = None
    env: Names = ()
    sandbox: Sandbox = "auto"
    network: Hosts = False  # the most that its files get of what they ask for
    secrets: SecretNames = ()  # the same
    # The higher hides the lower: 4 for `project`, 2 for `user`, 1 for others
    priority: Priority | None = None
    pinned: StrictBool = False  # whether no source that is not pinned hides its tools
    # An MCP server that is spoken to on stdio, in place of a directory; the keys below are of one alone.
    mcp: Annotated[tuple[str, ...], BeforeValidator(_mcp_command)] = ()
    share: Share = "project"  # the sessions that have one process in common
    concurrency: Annotated[StrictInt, Field(ge=1, le=256)] = 32  # calls that one process takes at once
    on_abort: OnAbort = "replace"  # what becomes of the process in which a call was stopped
    tools: Annotated[
        tuple[str, ...], BeforeValidator(strings("names of tools")), Field(max_length=RULES_MAX)
    ] = ()
    read_only: StrictBool = False
    kept_seconds: SecondsLimit = Field(default=None, alias="idle")  # without a call, before it is ended
    timeout_seconds: SecondsLimit = Field(default=None, alias="timeout")
    memory_bytes: BytesLimit = Field(default=None, alias="memory")
    processes: CountLimit = None
    open_files: OpenFilesLimit = None
    file_size_bytes: BytesLimit = Field(default=None, alias="file_size")
    disk_bytes: BytesLimit = Field(default=None, alias="disk")


class EnvironmentsSection(Section):
    """[environments]: packages that tools ask for."""

    # The program; the one on PATH by default
    uv: Annotated[FilePath, AfterValidator(_absolute)] | None = None
    source_builds: StrictBool = False  # whether packages without a wheel are built, which runs their code
    # What no tool file asks for any more is removed when it has not been used for so long.
    keep_seconds: Annotated[SecondsLimit, AfterValidator(_at_least_a_day)] = Field(
        default=30 * 86_400.0, alias="keep"
    )


class ProfileSection(Section):
    """[profile.NAME]: a sandbox of one's own, made of one that there is."""

    base: Literal["auto", "strict", "baseline"] = "auto"
    readable: Places = ()
    writable: Places = ()
    network: Hosts = False
    env: Names = ()
    secrets: SecretNames = ()
    programs: StrictBool = True  # whether programs may be started at all
    listen: StrictBool = False  # with network = true: whether it may accept connections


class SecretSection(Section):
    """[secrets] NAME: where a value comes from; exactly one of them."""

    command: Annotated[tuple[str, ...], BeforeValidator(strings("words of a command"))] = ()
    file: Annotated[FilePath, AfterValidator(_absolute)] | None = None
    env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None

    @model_validator(mode="after")
    def _one_place(self) -> SecretSection:
        if sum(bool(place) for place in (self.command, self.file, self.env)) != 1:
            raise ValueError('should say one place: command = ["…"], file = "/…" or env = "…"')
        return self


def _hooked(value: object) -> tuple[str, ...]:
    patterns = strings("patterns of tools")(value)
    if not 0 < len(patterns) <= RULES_MAX:
        raise ValueError(f"should be a list of at least one pattern and at most {RULES_MAX}")
    for pattern in patterns:
        if not is_pattern(pattern):
            raise ValueError(f"has {pattern[:60]!r}, which {NO_PATTERN}")
    return patterns


def _at_most_a_minute(value: float) -> float:
    if not 0 < value <= 60:
        raise ValueError('should be more than nothing and at most a minute; write "5s"')
    return value


class HookSection(Section):
    """[hooks.NAME]: a tool file whose functions see the calls of other tools."""

    file: Annotated[FilePath, AfterValidator(_absolute)]
    tools: Annotated[tuple[str, ...], BeforeValidator(_hooked)] = ("*",)
    timeout_seconds: Annotated[Seconds, AfterValidator(_at_most_a_minute)] = Field(
        default=5.0, alias="timeout"
    )


class ConfigFile(Section):
    """One file."""

    trust: Trust = "confined"
    daemon: DaemonSection = DaemonSection.default()
    defaults: DefaultsSection = DefaultsSection.default()
    max: MaxSection = MaxSection.default()
    enforce: EnforceSection = EnforceSection.default()
    spill: SpillSection = SpillSection.default()
    records: RecordsSection = RecordsSection.default()
    metrics: MetricsSection = MetricsSection.default()
    listen: ListenSection = ListenSection.default()
    environments: EnvironmentsSection = EnvironmentsSection.default()
    secrets: Mapping[str, SecretSection] = {}
    profile: Mapping[str, ProfileSection] = {}
    source: Mapping[str, SourceSection] = {}
    tool: Mapping[str, ToolSection] = {}
    permissions: Mapping[str, Action] = {}
    hooks: Mapping[str, HookSection] = {}


SECTIONS: Mapping[str, type[Section]] = {
    "daemon": DaemonSection,
    "defaults": DefaultsSection,
    "max": MaxSection,
    "enforce": EnforceSection,
    "spill": SpillSection,
    "records": RecordsSection,
    "metrics": MetricsSection,
    "listen": ListenSection,
    "environments": EnvironmentsSection,
    "secrets": SecretSection,
    "profile": ProfileSection,
    "source": SourceSection,
    "tool": ToolSection,
    "hooks": HookSection,
}
