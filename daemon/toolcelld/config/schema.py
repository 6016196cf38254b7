"""The sections of the configuration, as frozen models.

A key keeps its TOML name as an alias, the field carries the unit: `timeout` is `timeout_seconds`.
Whether a key was said at all is `model_fields_set`, which tells `memory = "off"` from silence.
`Declared` checks what a tool's file says with the same fields, so the two vocabularies cannot part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, StrictInt, model_validator

from toolcelld.config.permissions import RULES_MAX, Action
from toolcelld.config.protected import PROTECTED
from toolcelld.config.values import (
    AbsolutePath,
    Bytes,
    BytesLimit,
    Count,
    CountLimit,
    EnforcedRules,
    FilePath,
    Hosts,
    ListenAddress,
    McpCommand,
    Names,
    NodeName,
    OpenFilesLimit,
    Places,
    Priority,
    ProtectedNames,
    Sandbox,
    Seconds,
    SecondsLimit,
    SecondsOfAMinute,
    SecondsOfAnHour,
    SecondsOfDays,
    SecretNames,
    TcpAddress,
    ToolPatterns,
    strings,
)
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
    linger_seconds: SecondsOfAnHour = Field(default=10.0, alias="linger")
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


class MetricsSection(Section):
    """[metrics]: figures for Prometheus, and health, over HTTP. Every user of this machine can read what TCP serves."""

    listen: ListenAddress = ""  # "127.0.0.1:9464" or "/path"; empty: none


class ListenSection(Section):
    """[listen]: clients of other machines, over TCP with mutual TLS 1.3 and a ticket for each; read at the start."""

    address: TcpAddress = ""  # "HOST:PORT"; empty: none
    node: NodeName = ""  # empty: the name of the machine
    # None: below the state directory
    certificate: AbsolutePath | None = None
    key: AbsolutePath | None = None
    client_ca: AbsolutePath | None = None
    tickets: AbsolutePath | None = None
    sessions: Count = 50  # open at once with one ticket
    # Whether operators of the cluster may look at calls, sessions, workers and logs
    operators: StrictBool = False


LISTED_MAX = 64  # files that a source lists; the directory of each is hashed and watched


class SourceSection(Section):
    """[source.NAME]: a directory of tools or an MCP server, its interpreter, and what passes through to its tools."""

    directory: AbsolutePath | None = None
    files: Annotated[
        tuple[AbsolutePath, ...],
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
    mcp: McpCommand = ()
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
    uv: AbsolutePath | None = None
    source_builds: StrictBool = False  # whether packages without a wheel are built, which runs their code
    # What no tool file asks for any more is removed when it has not been used for so long.
    keep_seconds: SecondsOfDays = Field(default=30 * 86_400.0, alias="keep")


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
    file: AbsolutePath | None = None
    env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None

    @model_validator(mode="after")
    def _one_place(self) -> SecretSection:
        if sum(bool(place) for place in (self.command, self.file, self.env)) != 1:
            raise ValueError('should say one place: command = ["…"], file = "/…" or env = "…"')
        return self


class HookSection(Section):
    """[hooks.NAME]: a tool file whose functions see the calls of other tools."""

    file: AbsolutePath
    tools: ToolPatterns = ("*",)
    timeout_seconds: SecondsOfAMinute = Field(default=5.0, alias="timeout")


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
    name: kind
    for name, info in ConfigFile.model_fields.items()
    if isinstance(kind := (get_args(info.annotation) or (info.annotation,))[-1], type)
}
"""Of each table; of a table of names, that of one name."""
