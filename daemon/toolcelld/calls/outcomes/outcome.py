"""How a call ended, judged once, from evidence, by one pure function.

The precedence is isolate's: a limit, then an abort, then the report of the tool. An exceeded limit
counts whatever the exit code: a tool that returns normally after its time has still timed out.
The three kinds of failure have three shapes: a tool's failure is an `Outcome`, a caller's a `Refusal`,
a bug of the daemon an exception.

An outcome has a kind for programs, facts for policy and a message for people. The message has what
happened, with figures, and in further lines what would change it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, auto
from typing import Final, Literal, NamedTuple

from toolcell._units import format_bytes, format_seconds, show_seconds
from toolcelld.calls.outcomes import network
from toolcelld.cell.exit import CellExit
from toolcelld.cell.processes.usage import passed
from toolcelld.config.enforcement import enforced_by, limit_of
from toolcelld.config.remedies import set_command
from toolcelld.config.resolution.settings import KEYS, Limits, Settings, shown_limit
from toolcelld.network.attempts import Attempt
from toolcelld.network.refusals import RefusedHost
from toolcelld.output.spill import KeptOutput
from toolcelld.sandbox.policy import OPEN, CellLimits, SandboxPolicy


class Kind(StrEnum):
    """The kinds of the contract, in lower case."""

    OK = auto()
    TOOL_ERROR = auto()
    INVALID_ARGUMENTS = auto()
    DENIED = auto()
    ABORTED = auto()
    TIMED_OUT = auto()
    LIMIT_EXCEEDED = auto()
    CRASHED = auto()
    INTERNAL = auto()


Stopped = Literal["settled", "killed", "best_effort", "unconfirmed"]


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a call is stopped, and by whom; the first one counts."""

    kind: Literal[Kind.ABORTED, Kind.TIMED_OUT, Kind.LIMIT_EXCEEDED]
    cause: str  # "timeout", "idle", "client", "operator", "session_closed" …
    text: str  # for people: "by you", "5.0 s"


QUESTION_CAUSE: Final = "question"
"""Of a call whose questions were open for too long."""
LEASE_EXPIRED: Final = "lease_expired"
"""Of a call whose client, on another machine, may have been told by now that it is over."""


class Report(NamedTuple):
    """The worker's report about the end of a call; it comes from a process that is not trusted."""

    kind: str
    ran: bool
    cpu_seconds: float = 0.0
    memory_peak_bytes: int = 0
    threads: int = 0
    limit: str = ""  # the key of the limit that the kernel held it to, where that made it fail
    unreached: str | None = None  # the host that it failed to reach, empty where it is unknown
    changed: tuple[str, ...] = ()  # the state of its process that it changed for good
    missing: str = ""  # the module that it could not import


class Evidence(NamedTuple):
    """Everything that is known when a call that had a worker has ended."""

    tool: str
    settings: Settings
    limits: Limits  # as they applied: those of the settings, and lower ones of the call
    run_seconds: float
    grace_seconds: float
    stop: Stop | None = None
    stop_seconds: float = 0.0  # from the stop to the empty cell
    report_seconds: float = 0.0  # from the stop to the worker's report
    report: Report | None = None
    text: str = ""  # the beginning of what it returned or raised
    death: CellExit | None = None  # of the cell, where it ended with the call
    leftovers: int = 0  # processes besides the worker when it reported
    broken: str = ""  # what it sent that is not a valid frame
    policy: SandboxPolicy = OPEN  # of its cell
    refused: tuple[RefusedHost, ...] = ()  # hosts that it asked for and may not reach
    attempts: tuple[Attempt, ...] = ()  # at hosts that it may reach
    question_seconds: float = 0.0  # that its questions may wait, where it asked one
    server: str = ""  # the source of its MCP server, which proves nothing of a stopped call while it runs
    on_abort: str = "replace"  # whether that server is replaced
    remedy: str = ""  # how to get the module that it could not import
    # Why the daemon ended its cell though it had not been stopped, as the end of a sentence
    ended_for: str = ""


class Verdict(NamedTuple):
    """The judgement."""

    kind: Kind
    cause: str
    message: str
    ran: bool
    stopped: Stopped | None = None
    side_effects_possible: bool = False


WELL: Final = Verdict(Kind.OK, "", "", True)
"""Of a call that nothing has stopped and whose worker has reported a result."""


class Facts(NamedTuple):
    """Figures of a call; for policy."""

    queue_seconds: float = 0.0
    run_seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_peak_bytes: int = 0
    output_bytes: int = 0
    spilled_bytes: int = 0
    worker_id: str = ""
    generation: int = 0
    leftover_processes: int = 0
    leftover_threads: int = 0
    state_lost: bool = False
    stop_seconds: float = 0.0
    killed_processes: int = 0
    logs: tuple[KeptOutput, ...] = ()
    refused_hosts: tuple[str, ...] = ()
    moved_aside: tuple[str, ...] = ()
    node: str = ""
    fence: int = 0


NO_FACTS: Final = Facts()
RARE: Final = slice(Facts._fields.index("leftover_processes"), None)
"""The facts that nearly every call has none of."""
NONE_RARE: Final = NO_FACTS[RARE]


class Outcome(NamedTuple):
    """How a call ended; the body of its result is sent with it and not kept."""

    kind: Kind
    cause: str
    message: str
    metadata: bytes = b""  # JSON, an object; empty for none
    output: KeptOutput | None = None
    ran: bool = False
    stopped: Stopped | None = None
    side_effects_possible: bool = False
    facts: Facts = NO_FACTS
    notes: tuple[str, ...] = ()  # sentences for the model, in addition to the result

    def __str__(self) -> str:
        """Its kind and cause, for operators."""
        return f"{self.kind} ({self.cause})" if self.cause else self.kind


EMPTY_BODY: Final = b'{"content":[],"details":null}'
"""The body of a call without a result."""


# The outcomes of calls that no worker had; `calls.run` makes the others.


def stopped_waiting(stop: Stop, generation: int) -> Outcome:
    """The outcome of a call that was stopped before it had a worker."""
    message = f"{stop.text}; it had not started."
    return Outcome(stop.kind, stop.cause, message, facts=Facts(generation=generation))


def not_started(cause: str, message: str) -> Outcome:
    """The outcome of a call whose worker failed to start, by our fault or the host's."""
    return Outcome(Kind.INTERNAL, cause, message)


def not_allowed(cause: str, message: str, generation: int) -> Outcome:
    """The outcome of a call that a person or a hook did not allow to run."""
    return Outcome(Kind.DENIED, cause, message, facts=Facts(generation=generation))


def unread(outcome: Outcome) -> Outcome:
    """Return the outcome of a call whose result is dropped, because clients hold too much already."""
    return outcome._replace(
        kind=Kind.LIMIT_EXCEEDED,
        cause="unread_outcomes",
        message="the call has ended, but its result was dropped: the daemon holds too much that was not read.\n"
        "Read and acknowledge outcomes. More is kept with larger daemon.retained_per_session and daemon.retained "
        "(toolcell config set).",
        side_effects_possible=outcome.side_effects_possible or outcome.ran,
    )


def failed(message: str, *, ran: bool) -> Outcome:
    """The outcome of a call that met a bug of the daemon."""
    return Outcome(Kind.INTERNAL, "failure", message, ran=ran, side_effects_possible=ran)


_LIMIT_SIGNALS: Final = {"SIGXCPU": "cpu", "SIGXFSZ": "file_size"}
_LIMITS_RAISED: Final = frozenset({"open_files", "file_size", "disk", "processes"})
"""Those that a tool meets as an exception; the others are nothing that a worker can say."""
_REPORTED: Final = {
    kind.value: kind for kind in (Kind.OK, Kind.TOOL_ERROR, Kind.INVALID_ARGUMENTS, Kind.DENIED)
}


def judge(evidence: Evidence) -> Verdict:
    """Return the verdict; the precedence is described at the top."""
    report = evidence.report
    unstopped = evidence.stop is None and evidence.death is None and not evidence.broken
    if unstopped and report is not None and report.kind == "ok":
        return Verdict(Kind.OK, "", "", report.ran)
    ran = report is None or report.ran
    if (limit := _limit_passed(evidence)) is not None:
        return limit
    if evidence.stop is not None:
        return _stopped(evidence, evidence.stop, ran)
    if evidence.broken:
        message = f"the worker sent what is no frame ({evidence.broken}) and was ended."
        return Verdict(Kind.CRASHED, "protocol", message, True, side_effects_possible=True)
    if report is None:
        return _crashed(evidence)
    if report.kind == "aborted":  # the tool claims it, but no abort was sent
        message = "the tool stopped as if it had been aborted, but nothing had aborted it."
        return Verdict(Kind.TOOL_ERROR, "aborted", message, report.ran)
    kind = _REPORTED.get(report.kind, Kind.INTERNAL)
    cause = "failure" if kind is Kind.INTERNAL else ""
    message = evidence.text if evidence.text.strip() else "the tool failed without saying why."
    if kind is Kind.TOOL_ERROR and (why := _network(evidence, report)):
        # The reason first, unless it may be another one.
        message = f"{message}\n{why}" if report.unreached is None else f"{why}\n{message}"
    if kind is Kind.TOOL_ERROR and evidence.remedy:
        message = f"{message}\n{evidence.remedy}"
    return Verdict(kind, cause, "" if kind is Kind.OK else message, report.ran)


def _limit_passed(evidence: Evidence) -> Verdict | None:
    """A limit that the kernel enforced: read off its books, the way the worker died, or what the tool raised."""
    key, message = _kernel_says(evidence)
    if not key or _limit(evidence, key) is None:
        return None  # not one of our limits: another process sent the signal
    death = evidence.death
    stopped: Stopped | None = None
    if death is not None and death.out_of_memory:
        stopped = "killed" if death.proven else "best_effort"
    return Verdict(
        Kind.LIMIT_EXCEEDED, key, message + _raise(evidence, key), True, stopped, side_effects_possible=True
    )


def _kernel_says(evidence: Evidence) -> tuple[str, str]:
    """The key of a limit, and what happened to whom; or nothing."""
    death, report = evidence.death, evidence.report
    if death is not None and death.out_of_memory:
        limit = _limit(evidence, "memory") or 0
        text = passed("memory", death.memory_peak_bytes or limit, limit, evidence.run_seconds, death.usage)
        return (
            "memory",
            f"{text}, which the kernel ended." if death.usage else f"{text}; the kernel ended it.",
        )
    if report is not None:
        key = report.limit if report.kind == "tool_error" and report.limit in _LIMITS_RAISED else ""
        said = evidence.text.strip() or "the tool failed without saying why."
        return (
            key,
            f"{_figure(evidence, key)} after {format_seconds(evidence.run_seconds)}; {said}" if key else "",
        )
    if death is None or death.status is None:
        return "", ""
    key = _LIMIT_SIGNALS.get(death.cause(), "")
    after = format_seconds(evidence.run_seconds)
    return key, f"{_figure(evidence, key)} after {after}; its process was ended." if key else ""


def _limit(evidence: Evidence, key: str) -> int | float | None:
    limit: int | float | None = getattr(evidence.limits, KEYS[key]) if key in KEYS else None
    return limit


def _figure(evidence: Evidence, key: str) -> str:
    """A limit that was met exactly, in words."""
    limit = _limit(evidence, key) or 0
    match key:
        case "cpu":
            return f"{limit:g} s of processor time"
        case "file_size":
            return f"a file of {format_bytes(limit)}"
        case "open_files":
            return f"{limit} open files of one process"
        case "processes":
            return f"{limit} processes and threads"
        case _:
            return f"{format_bytes(limit)} in its temporary directory"


def _crashed(evidence: Evidence) -> Verdict:
    death = evidence.death
    if evidence.ended_for:
        message = f"its MCP server was ended after {format_seconds(evidence.run_seconds)}, because {evidence.ended_for}."
        return Verdict(Kind.CRASHED, "server_ended", message, True, side_effects_possible=True)
    if death is None or death.status is None:
        message = f"its cell was lost after {format_seconds(evidence.run_seconds)}."
        return Verdict(Kind.CRASHED, "lost", message, True, side_effects_possible=True)
    cause = death.cause()
    how = f"exited with status {cause[5:]}" if cause.startswith("exit ") else f"was ended by {cause}"
    message = (
        f"its process {how} after {format_seconds(evidence.run_seconds)}.{_stack(death)}{_last_lines(death)}"
    )
    return Verdict(Kind.CRASHED, cause, message, True, side_effects_possible=True)


def _stopped(evidence: Evidence, stop: Stop, ran: bool) -> Verdict:
    death = evidence.death
    if evidence.report is not None and not (
        evidence.server or _leftovers(evidence) or evidence.report.threads
    ):
        proof: Stopped = "settled"
    elif evidence.server and death is None:
        proof = "unconfirmed"
    elif death is not None and death.proven:
        proof = "killed"
    else:
        proof = "best_effort"
    message = f"{stop.text}; {_ending(evidence)}"
    if stop.kind is not Kind.ABORTED:
        message += _raise(evidence, stop.cause)
    if ran:
        message += "\nWhat it had done until then is not undone."
    return Verdict(stop.kind, stop.cause, message, ran, proof, side_effects_possible=ran)


def _ending(evidence: Evidence) -> str:
    death, report = evidence.death, evidence.report
    if report is not None and not evidence.server:
        by_itself = f"it stopped by itself {format_seconds(evidence.report_seconds)} later"
        if leftovers := _leftovers(evidence):
            were = "was" if leftovers == 1 else "were"
            return f"{by_itself}; {_count(leftovers)} it had left behind {were} killed."
        if report.threads:
            return f"{by_itself}; threads it had left behind were ended with its process."
        return f"{by_itself}, and so did what it had started."
    if evidence.server and death is None:
        asked = "its MCP server was told to cancel it, and nothing says whether it has stopped"
        if evidence.on_abort == "keep":
            return f'{asked}; the server stays, as on_abort is "keep".'
        return f"{asked}; that process gets no further call, and is ended when its other calls are over."
    killed = death.killed if death is not None else 0
    others = f" with its {_count(killed - 1)}" if killed > 1 else ""
    if evidence.server and report is not None:
        gone = f"its MCP server was told to cancel it, and was ended with the call after {format_seconds(evidence.stop_seconds)}"
    elif evidence.stop_seconds < evidence.grace_seconds:
        gone = f"its process{others} was gone after {format_seconds(evidence.stop_seconds)}"
    else:
        after = evidence.stop_seconds - evidence.grace_seconds
        gone = f"it ignored that for {format_seconds(evidence.grace_seconds)} and was killed{others}, the last gone after {format_seconds(after)}"
    if death is None or death.proof == "none":
        return f"{gone}, but it could not be proven that nothing of it is left."
    return f"{gone}{'' if death.proven else ', as far as this host can tell'}."


def _leftovers(evidence: Evidence) -> int:
    """Processes besides the worker: those that were counted, or else those that were killed with it."""
    killed = evidence.death.killed if evidence.death is not None else 0
    return max(evidence.leftovers, killed - 1)


def _raise(evidence: Evidence, key: str) -> str:
    """The command that would raise a limit, where it was not the call's own."""
    if key == QUESTION_CAUSE:
        if evidence.question_seconds == limit_of(evidence.settings.enforce, "timeout_seconds"):
            return f"\nIt is the most that {enforced_by('max.timeout')} allows."
        raised = set_command(("max", "timeout"), show_seconds(2 * evidence.question_seconds))
        return f"\nCall it again when its questions can be answered, or let them wait longer: {raised}"
    value = _limit(evidence, key)
    if not value:
        return ""
    if value != getattr(evidence.settings.limits, KEYS[key]):
        return f"\nThe call itself asked for that {key}; its tool may have more."
    settings = evidence.settings
    if key in settings.held:
        return (
            f"\nIts {key} of {settings.held[key]} is held until it is trusted.\n"
            f"  To see what is asked for, and to grant it: {settings.grant}"
        )
    if value == limit_of(settings.enforce, KEYS[key]):
        return f"\nIt is the most that {enforced_by(f'max.{key}')} allows."
    # The limits of a cell are those of its server.
    of = (
        ("source", evidence.server)
        if evidence.server and hasattr(CellLimits, KEYS[key])
        else ("tool", evidence.tool)
    )
    raised = set_command((*of, key), shown_limit(KEYS[key], value * 2))
    trust = f"\n  then, as only trusted tools have more: {settings.grant}" if settings.grant else ""
    return f"\n  To raise it: {raised}{trust}"


def _network(evidence: Evidence, report: Report) -> str:
    return network.explained(
        ("source", evidence.server) if evidence.server else ("tool", evidence.tool),
        evidence.settings,
        evidence.policy,
        report.unreached,
        evidence.refused,
        evidence.attempts,
    )


def _stack(death: CellExit) -> str:
    frames = "".join(f"\n  {frame}" for frame in death.stack)
    return f" It was here, the last call at the end:{frames}" if frames else ""


def _last_lines(death: CellExit) -> str:
    """What the call printed last: on stderr, or else on stdout."""
    printed = death.stderr if death.stderr.strip() else death.stdout
    lines = [line for line in printed.strip().splitlines() if line.strip()][-5:]
    return "".join(f"\n{line[:200]}" for line in lines)


def _count(number: int) -> str:
    return f"{number} process" if number == 1 else f"{number} processes"
