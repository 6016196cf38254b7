"""The messages between the daemon and a worker: one dataclass for each, with the bounds of its fields.

A message is the header of a frame (`toolcelld.protocol.frames`): its fields are those of the header, and the payload of the
frame travels beside it. `encode` and `split` make frames of a message; `from_worker` and `to_worker` read a header.

Received messages are validated, because a worker runs a user's code. Sent messages are not; the type checker checks them.
- An unknown type, a missing field, a value of another type or beyond its bound raise `MessageError`.
- A display text is truncated at its bound instead, and lone surrogates in it are replaced: it may come from a tool.
- A figure of `progress` beyond its bound is read as 0 instead: it comes from a tool's own computation.
- A field with a default may be absent. None is not sent. Unknown fields are ignored.

docs/worker-protocol.md has their order and their payloads; a test compares its list with these types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Final, Literal, NotRequired, TypeAlias, get_args

from pydantic import BeforeValidator, Field, Strict, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic does not take typing's before 3.12

from toolcell._results.json_value import whole
from toolcell._results.normalise import BLOCKS_MAX
from toolcelld.protocol import frames
from toolcelld.protocol.frames import FrameError

PROTOCOL_VERSION: Final = 1

MESSAGE_BYTES_MAX: Final = 17 * 1024 * 1024
"""Of a message to a worker, with its chunks: arguments are at most 16 MiB, a source file at most 1 MiB."""
DESCRIPTION_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of the description of all tools of one file, as JSON."""
PART_BYTES_MAX: Final = 1 << 40
"""Of one part of a result: 1 TiB, more than any real part has."""
METADATA_BYTES_MAX: Final = 32 * 1024
"""Of the merged metadata of one call, which is sent untruncated with the outcome."""
RECORDS_MAX: Final = 100
"""Log records in one `log` message; the daemon takes a millisecond or two for them, and serves others in between."""

NUMBER_MAX: Final = 2**31 - 1
"""Of the number of a question, a line or a process."""
SEQUENCE_MAX: Final = 2**63 - 1
LOST_MAX: Final = 1_000_000_000
"""Of the lost records in one `log`; the session counts the total in 64 bits."""
THREADS_MAX: Final = 1_000_000
"""The kernel has at most four times as many."""
FIGURE_MAX: Final = 10**15
"""A petabyte, or thirty million years."""
LAYERS_MAX: Final = 32
CALLS_MAX: Final = 256
"""Calls that one worker can take at once; a pipe and two sockets serve all of them."""
CHANGED_MAX: Final = 32
"""Kinds of state of a process; a test compares it with the worker's."""
IMPORTED_MAX: Final = 50
"""Files in one `imported` message, which is then within the bound of a header."""
LINE_CHARACTERS_MAX: Final = 1000
"""Of a progress message, a title, a reason, the name of a link."""
CAUSE_CHARACTERS_MAX: Final = 4000
"""Of the reason why a file cannot be used, and of the address of a link."""
WORD_CHARACTERS_MAX: Final = 100
"""Of a layer, a version, a media type."""
MODULE_CHARACTERS_MAX: Final = 200


class MessageError(FrameError):
    """A message breaks the protocol.

    Args:
        message: The type of the message.
        field: The field that is wrong.
        problem: What is wrong with it.
    """

    def __init__(self, message: str, field: str, problem: str) -> None:
        super().__init__(f"{field[:60]} of a message {message[:40]!r}: {problem[:80]}")
        self.message = message
        self.field = field


def _cut(characters_max: int) -> BeforeValidator:
    def cut(value: object) -> object:
        return whole(value[:characters_max]) if isinstance(value, str) else value

    return BeforeValidator(cut)


def _none_beyond(value: object) -> object:
    return 0.0 if isinstance(value, int | float) and not abs(value) <= FIGURE_MAX else value


Flag: TypeAlias = Annotated[bool, Strict()]
Exact: TypeAlias = Annotated[str, Strict()]  # as it is: a path may have lone surrogates
Shown: TypeAlias = Annotated[str, Strict(), _cut(frames.HEADER_BYTES_MAX)]  # whole; the header bounds it
Word: TypeAlias = Annotated[str, Strict(), _cut(WORD_CHARACTERS_MAX)]
Module: TypeAlias = Annotated[str, Strict(), _cut(MODULE_CHARACTERS_MAX)]
Line: TypeAlias = Annotated[str, Strict(), _cut(LINE_CHARACTERS_MAX)]
Cause: TypeAlias = Annotated[str, Strict(), _cut(CAUSE_CHARACTERS_MAX)]
Sequence: TypeAlias = Annotated[int, Strict(), Field(ge=0, le=SEQUENCE_MAX)]
Number: TypeAlias = Annotated[int, Strict(), Field(ge=0, le=NUMBER_MAX)]
AskNumber: TypeAlias = Annotated[int, Strict(), Field(ge=1, le=NUMBER_MAX)]
Length: TypeAlias = Annotated[int, Strict(), Field(ge=0, le=PART_BYTES_MAX)]
Size: TypeAlias = Annotated[int, Strict()]  # with its chunks; the reader of the message knows its bound
ProjectPath: TypeAlias = Annotated[str, Strict(), Field(max_length=LINE_CHARACTERS_MAX)]
Stamp: TypeAlias = Annotated[int, Strict(), Field(ge=0, le=SEQUENCE_MAX)]
Figure: TypeAlias = Annotated[float, Strict(), BeforeValidator(_none_beyond)]

Kind: TypeAlias = Literal["ok", "tool_error", "invalid_arguments", "denied", "aborted", "internal"]
RaisedLimit: TypeAlias = Literal["open_files", "file_size", "disk", "processes"]
Stage: TypeAlias = Literal["syntax", "import", "exit", "describe"]


# From the daemon to a worker


@dataclass(frozen=True, slots=True, kw_only=True)
class BecomeMessage:
    """Configure the cell; the payload is a `sandbox.setup.CellSetup` as JSON."""

    type: Literal["become"] = "become"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadMessage:
    """Load a tool file; the payload is its content. With `tests` its calls run tests in place of its tools."""

    type: Literal["load"] = "load"
    path: Exact
    stem: Exact
    directory: Exact
    package: Flag = False
    describe: Flag = False
    fork: Flag = False
    tests: Flag = False


class CallContext(TypedDict):
    """The facts of a call that its tool can read."""

    session_id: Exact
    message_id: Exact
    call_id: Exact
    agent: Exact
    agent_name: Exact
    directory: Exact
    worktree: Exact
    traceparent: NotRequired[Exact]
    has_ui: NotRequired[bool]


class CallHeader(TypedDict):
    """A `CallMessage` as the daemon sends it; to make that of each call, and a header of it, takes 5,000 instructions more."""

    type: Literal["call"]
    seq: int
    tool: str
    context: CallContext


@dataclass(slots=True, kw_only=True)  # not frozen: that would take 2 µs of every call
class CallMessage:
    """Run a call; the payload is the arguments."""

    type: Literal["call"] = "call"
    seq: Sequence
    tool: Exact
    context: CallContext


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerMessage:
    """The answer to an `ask`."""

    type: Literal["answer"] = "answer"
    ask: AskNumber
    allowed: Flag
    always: Flag
    message: Line


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyMessage:
    """The answer to a `request`; the payload is the service's result, or empty where `message` has the reason."""

    type: Literal["reply"] = "reply"
    ask: AskNumber
    message: Line


@dataclass(frozen=True, slots=True, kw_only=True)
class RetireMessage:
    """Exit."""

    type: Literal["retire"] = "retire"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkMessage:
    """The next bytes of the previous message's payload; in both directions."""

    type: Literal["chunk"] = "chunk"


# From a worker to the daemon


@dataclass(frozen=True, slots=True, kw_only=True)
class HelloMessage:
    """The worker has started."""

    type: Literal["hello"] = "hello"
    protocol: Annotated[int, Strict(), Field(ge=PROTOCOL_VERSION, le=PROTOCOL_VERSION)]
    pid: Number
    python: Word


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedMessage:
    """The worker is another process from here on: the first child of the earlier one, which is its guard."""

    type: Literal["guarded"] = "guarded"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedMessage:
    """Files of the project that were imported as modules: by path below the project, the modification time.

    The time is in nanoseconds, and 0 for a file that was changed while it was imported.
    """

    type: Literal["imported"] = "imported"
    files: Annotated[Mapping[ProjectPath, Stamp], Field(max_length=IMPORTED_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedMessage:
    """The file is loaded; the payload is its `Description`."""

    type: Literal["loaded"] = "loaded"
    layers: Annotated[tuple[Word, ...], Field(max_length=LAYERS_MAX)] = ()
    forks: Flag | None = None
    # That it takes at once; one by default
    calls: Annotated[int, Strict(), Field(ge=1, le=CALLS_MAX)] | None = None
    size: Size | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenMessage:
    """The file cannot be used."""

    type: Literal["broken"] = "broken"
    stage: Stage
    message: Cause
    line: Number = 0
    module: Module = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedMessage:
    """The cell could not be built; no code of the file has run."""

    type: Literal["failed"] = "failed"
    message: Line


@dataclass(slots=True, kw_only=True)  # not frozen, as CallMessage
class TextPart:
    """A text among the blocks of a result."""

    type: Literal["text"] = "text"
    bytes: Length


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePart:
    """An image among the blocks of a result."""

    type: Literal["image"] = "image"
    bytes: Length
    mime_type: Word


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """A file among the blocks of a result."""

    type: Literal["file"] = "file"
    bytes: Length
    mime_type: Word
    name: Line


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPart:
    """A link among the blocks of a result; it has no bytes in the payload."""

    type: Literal["resource_link"] = "resource_link"
    uri: Cause
    name: Line | None = None
    mime_type: Word | None = None


Part: TypeAlias = TextPart | ImagePart | FilePart | LinkPart


@dataclass(frozen=True, slots=True, kw_only=True)
class GoneMessage:
    """The process of a call has exited, and its temporary files are removed."""

    type: Literal["gone"] = "gone"
    seq: Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedMessage:
    """The MCP server of the worker has other tools now; the payload is a `Description`."""

    type: Literal["listed"] = "listed"
    size: Size | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedMessage:
    """The MCP server of the worker has ended while it had no call; a call that comes nevertheless starts it again."""

    type: Literal["ended"] = "ended"
    message: Line


@dataclass(slots=True, kw_only=True)  # not frozen, as CallMessage
class ResultMessage:
    """The call has ended; the payload is the bytes of the blocks, then the details, then the metadata."""

    type: Literal["result"] = "result"
    seq: Sequence
    kind: Kind
    ran: Flag
    blocks: Annotated[tuple[Annotated[Part, Field(discriminator="type")], ...], Field(max_length=BLOCKS_MAX)]
    details: Length | None = None
    metadata: Length | None = None
    title: Line | None = None
    cpu: Annotated[float, Strict(), Field(ge=0, le=FIGURE_MAX)]
    rss: Annotated[int, Strict(), Field(ge=0, le=FIGURE_MAX)]
    threads: Annotated[int, Strict(), Field(ge=0, le=THREADS_MAX)]
    limit: RaisedLimit | None = None
    unreached: Line | None = None
    missing: Module | None = None
    fits: Flag | None = None
    changed: Annotated[tuple[Word, ...], Field(max_length=CHANGED_MAX)] | None = None
    size: Size | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMessage:
    """A partial result, which is the payload."""

    type: Literal["update"] = "update"
    seq: Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressMessage:
    """How far the tool is."""

    type: Literal["progress"] = "progress"
    seq: Sequence
    done: Figure
    total: Figure | None = None
    message: Line = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataMessage:
    """Values for the call's outcome, which are the payload."""

    type: Literal["metadata"] = "metadata"
    seq: Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMessage:
    """Records, which are the payload, and how many were lost before them."""

    type: Literal["log"] = "log"
    seq: Sequence
    lost: Annotated[int, Strict(), Field(ge=0, le=LOST_MAX)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AskMessage:
    """A question to the user; the payload is its details. It is never truncated: it is shown in full, or denied."""

    type: Literal["ask"] = "ask"
    seq: Sequence
    ask: AskNumber
    question: Shown
    permission: Shown = ""
    patterns: tuple[Shown, ...] = ()
    always: tuple[Shown, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMessage:
    """A request for a service of the agent; the payload is its arguments."""

    type: Literal["request"] = "request"
    seq: Sequence
    ask: AskNumber
    service: Shown


@dataclass(frozen=True, slots=True, kw_only=True)
class WithdrawMessage:
    """The worker no longer waits for the answer to a question or a request."""

    type: Literal["withdraw"] = "withdraw"
    seq: Sequence
    ask: AskNumber


ToWorker: TypeAlias = (
    BecomeMessage | LoadMessage | CallMessage | AnswerMessage | ReplyMessage | RetireMessage | ChunkMessage
)
FromWorker: TypeAlias = (
    HelloMessage | GuardedMessage | ImportedMessage | LoadedMessage | BrokenMessage | FailedMessage
    | ResultMessage | UpdateMessage | ProgressMessage | MetadataMessage | LogMessage
    | AskMessage | RequestMessage | WithdrawMessage | ChunkMessage | GoneMessage | ListedMessage | EndedMessage
)  # fmt: skip

Message: TypeAlias = ToWorker | FromWorker


def prepare_to_worker() -> None:
    """Make the readers of all messages to a worker, so that the processes forked from this one need not."""
    for kind in _TO_WORKER.kinds:
        _TO_WORKER[kind]


class _Readers(dict[str, Callable[[Any], Any]]):
    """The readers of the messages of one direction, by type. Each is made at its first use, which takes a millisecond."""

    def __init__(self, union: object) -> None:
        self.kinds: Mapping[str, type[Any]] = {str(fields(kind)[0].default): kind for kind in get_args(union)}

    def __missing__(self, kind: str) -> Callable[[Any], Any]:
        if kind not in self.kinds:
            raise MessageError(kind, "type", "is not known")
        reader = self[kind] = TypeAdapter(self.kinds[kind]).validator.validate_python
        return reader

    def read(self, header: Mapping[str, Any]) -> Any:
        try:
            return self[header["type"]](header)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
            field = ".".join(map(str, problem["loc"]))
            raise MessageError(header["type"], field, problem["msg"]) from None


_TO_WORKER: Final = _Readers(ToWorker)
from_worker: Final[Callable[[Mapping[str, Any]], FromWorker]] = _Readers(FromWorker).read
"""Reads the header of a message from a worker; raises `MessageError`."""
to_worker: Final[Callable[[Mapping[str, Any]], ToWorker]] = _TO_WORKER.read
"""Reads the header of a message from the daemon; raises `MessageError`."""
