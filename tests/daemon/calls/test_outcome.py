"""The judgement: one ending for every evidence there can be, in the order of precedence."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import Final, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcelld.calls.outcomes.outcome import Evidence, Kind, Report, Stop, judge, stopped_waiting
from toolcelld.cell.exit import CellExit, Proof
from toolcelld.cell.processes.usage import CellUsage, Member
from toolcelld.config.resolution.settings import Limits, Settings

SECONDS = st.floats(0, 1e6)
TEXTS = st.sampled_from(["", " ", "no such table: orders", "ZeroDivisionError: division by zero"])
PROOFS: Final[list[Literal["landlock", "children", "zygote", "none"]]] = [
    "landlock",
    "children",
    "zygote",
    "none",
]
WAIT_STATUSES = (
    st.sampled_from([None, int(signal.SIGXCPU), int(signal.SIGXFSZ)])
    | st.integers(0, 64)
    | st.integers(0, 255).map(lambda code: code << 8)
)

REPORTS = st.builds(
    Report,
    kind=st.sampled_from(
        ["ok", "tool_error", "invalid_arguments", "denied", "aborted", "internal", "", "timed_out"]
    ),
    ran=st.booleans(),
    threads=st.integers(0, 3),
)
DEATHS = st.builds(
    CellExit,
    status=WAIT_STATUSES,
    cpu_seconds=SECONDS,
    memory_peak_bytes=st.integers(0, 2**40),
    killed=st.integers(0, 100),
    proof=st.sampled_from(PROOFS),
    stderr=st.text(max_size=200),
)
STOPS = st.builds(
    Stop,
    kind=st.sampled_from([Kind.ABORTED, Kind.TIMED_OUT, Kind.LIMIT_EXCEEDED]),
    cause=st.sampled_from(["client", "timeout", "idle", "memory"]),
    text=st.sampled_from(["by you", "5.0 s"]),
)
LIMITS = st.builds(
    Limits,
    timeout_seconds=st.none() | st.just(120.0),
    cpu_seconds=st.none() | st.just(30.0),
    file_size_bytes=st.none() | st.just(2**30),
)
LIMITED: Final = Limits(timeout_seconds=120.0, cpu_seconds=30.0, file_size_bytes=2**30)
EVIDENCE = st.builds(
    Evidence,
    tool=st.just("render"),
    settings=st.deferred(lambda: LIMITS.map(settings)),
    limits=LIMITS,
    run_seconds=SECONDS,
    grace_seconds=st.just(2.0),
    stop=st.none() | STOPS,
    stop_seconds=SECONDS,
    report_seconds=SECONDS,
    report=st.none() | REPORTS,
    text=TEXTS,
    death=st.none() | DEATHS,
    leftovers=st.integers(0, 5),
    broken=st.sampled_from(["", "payload of 9 bytes"]),
    server=st.sampled_from(["", "git"]),
)


def settings(limits: Limits) -> Settings:
    return Settings(
        limits=limits,
        isolation="worker",
        output="head",
        enabled=True,
        read_only=False,
        destructive=False,
        idempotent=False,
        lines=(),
    )


def evidence(
    *,
    report: str = "",
    signal_number: int = 0,
    status: int = 0,
    stop: Stop | None = None,
    stop_seconds: float = 0.004,
    report_seconds: float = 0.004,
    leftovers: int = 0,
    killed: int = 1,
    proof: Literal["landlock", "children", "none"] = "landlock",
    text: str = "",
    stderr: str = "",
) -> Evidence:
    """A call that ran for 4.1 s under limits of 120 s, 30 s of processor time and files of 1 GiB."""
    death = CellExit(signal_number or status << 8, 0.0, 0, killed, proof, stderr)
    return Evidence(
        tool="render",
        settings=settings(LIMITED),
        limits=LIMITED,
        run_seconds=4.1,
        grace_seconds=2.0,
        stop=stop,
        stop_seconds=stop_seconds,
        report_seconds=report_seconds,
        report=Report(report, ran=True) if report else None,
        death=death if signal_number or status or stop else None,
        leftovers=leftovers,
        text=text,
    )


def limit_of(found: Evidence) -> str:
    """The limit of ours that the kernel enforced with a signal."""
    limits, death = found.limits, found.death
    if found.report is None and death is not None and death.status == signal.SIGXCPU and limits.cpu_seconds:
        return "cpu"
    if (
        found.report is None
        and death is not None
        and death.status == signal.SIGXFSZ
        and limits.file_size_bytes
    ):
        return "file_size"
    return ""


@given(EVIDENCE)
def test_the_first_of_limit_stop_crash_and_report_decides(found: Evidence) -> None:
    verdict = judge(found)
    if limit := limit_of(found):
        assert (verdict.kind, verdict.cause) == (Kind.LIMIT_EXCEEDED, limit)
    elif found.stop is not None:
        assert (verdict.kind, verdict.cause) == (found.stop.kind, found.stop.cause)
    elif found.broken or found.report is None:
        assert verdict.kind is Kind.CRASHED
        assert verdict.cause
    elif found.report.kind in ("ok", "invalid_arguments", "denied", "tool_error"):
        assert (verdict.kind.value, verdict.cause) == (found.report.kind, "")
    else:
        assert verdict.kind is (Kind.TOOL_ERROR if found.report.kind == "aborted" else Kind.INTERNAL)


@given(EVIDENCE)
def test_every_ending_but_a_good_one_says_something(found: Evidence) -> None:
    verdict = judge(found)
    assert bool(verdict.message.strip()) is (verdict.kind is not Kind.OK)


@given(EVIDENCE)
def test_a_proof_of_stop_stands_on_evidence(found: Evidence) -> None:
    verdict = judge(found)
    by_stop = not limit_of(found) and found.stop is not None
    assert (verdict.stopped is not None) is by_stop
    if verdict.stopped == "settled":
        assert found.report is not None
        assert not found.server, "a server says nothing of what it has cancelled"
        assert (found.leftovers, found.report.threads) == (0, 0)
    if verdict.stopped == "killed":
        assert found.death is not None
        assert found.death.proven


@given(STOPS, st.integers(0, 9))
def test_a_tool_that_never_started_did_not_run(stop: Stop, generation: int) -> None:
    outcome = stopped_waiting(stop, generation)
    assert (outcome.kind, outcome.cause) == (stop.kind, stop.cause)
    assert outcome.message == f"{stop.text}; it had not started."
    assert not outcome.ran
    assert not outcome.side_effects_possible
    assert outcome.facts.generation == generation


def test_a_normal_return_after_the_time_out_has_timed_out_all_the_same() -> None:
    verdict = judge(
        evidence(report="ok", stop=Stop(Kind.TIMED_OUT, "timeout", "120.0 s"), report_seconds=0.001)
    )
    assert verdict.kind is Kind.TIMED_OUT
    assert verdict.stopped == "settled"
    assert verdict.message == (
        "120.0 s; it stopped by itself 1 ms later, and so did what it had started.\n"
        "  To raise it: toolcell config set tool.render.timeout 4m\n"
        "What it had done until then is not undone."
    )


def test_one_that_ignored_the_abort_was_killed_and_the_message_says_when() -> None:
    verdict = judge(evidence(stop=Stop(Kind.ABORTED, "client", "by you"), stop_seconds=2.011, killed=4))
    assert (verdict.kind, verdict.stopped) == (Kind.ABORTED, "killed")
    assert verdict.message == (
        "by you; it ignored that for 2.0 s and was killed with its 3 processes, the last gone after 11 ms.\n"
        "What it had done until then is not undone."
    )


def test_without_a_proof_the_message_says_so() -> None:
    verdict = judge(
        evidence(stop=Stop(Kind.ABORTED, "client", "by you"), stop_seconds=2.011, proof="children")
    )
    assert verdict.stopped == "best_effort"
    assert "as far as this host can tell" in verdict.message


def test_what_may_be_left_of_a_cell_is_not_said_to_be_gone() -> None:
    verdict = judge(evidence(stop=Stop(Kind.ABORTED, "client", "by you"), stop_seconds=2.011, proof="none"))
    assert verdict.stopped == "best_effort"
    assert "it could not be proven that nothing of it is left" in verdict.message


def test_what_an_aborted_tool_left_behind_is_counted() -> None:
    verdict = judge(evidence(report="aborted", stop=Stop(Kind.ABORTED, "client", "by you"), leftovers=1))
    assert verdict.stopped == "killed"
    assert "1 process it had left behind was killed" in verdict.message


def test_a_thread_left_behind_is_no_settled_stop() -> None:
    stopped = evidence(report="aborted", stop=Stop(Kind.ABORTED, "client", "by you"))
    verdict = judge(stopped._replace(report=Report("aborted", ran=True, threads=1)))
    assert verdict.stopped == "killed"
    assert "threads it had left behind were ended with its process" in verdict.message


@pytest.mark.parametrize(
    ("found", "cause", "message"),
    [
        (evidence(signal_number=signal.SIGSEGV), "SIGSEGV", "its process was ended by SIGSEGV after 4.1 s."),
        (
            evidence(status=3, stderr="one\n\ntwo\n"),
            "exit 3",
            "its process exited with status 3 after 4.1 s.\none\ntwo",
        ),
        (evidence(), "lost", "its cell was lost after 4.1 s."),
    ],
)
def test_a_crash_names_its_cause_and_the_last_lines(found: Evidence, cause: str, message: str) -> None:
    verdict = judge(found)
    assert (verdict.kind, verdict.cause, verdict.message) == (Kind.CRASHED, cause, message)


def test_a_limit_that_the_kernel_enforced_names_its_figure_and_its_key() -> None:
    verdict = judge(evidence(signal_number=signal.SIGXFSZ))
    assert verdict.message == (
        "a file of 1 GiB after 4.1 s; its process was ended.\n"
        "  To raise it: toolcell config set tool.render.file_size 2GiB"
    )
    assert judge(evidence(signal_number=signal.SIGXCPU)).cause == "cpu"


@pytest.mark.parametrize("configured", [2**30, None])
def test_a_limit_that_the_call_lowered_is_not_said_to_be_configured(configured: int | None) -> None:
    found = evidence(signal_number=signal.SIGXFSZ)._replace(
        settings=settings(Limits(file_size_bytes=configured)),
        limits=Limits(file_size_bytes=2**20),
    )
    assert judge(found).message == (
        "a file of 1 MiB after 4.1 s; its process was ended.\n"
        "The call itself asked for that file_size; its tool may have more."
    )


def test_a_signal_of_a_limit_that_is_off_is_a_crash() -> None:
    found = evidence(signal_number=signal.SIGXCPU)._replace(settings=settings(Limits()), limits=Limits())
    assert (judge(found).kind, judge(found).cause) == (Kind.CRASHED, "SIGXCPU")


def test_a_tool_that_aborts_itself_has_failed() -> None:
    assert judge(evidence(report="aborted")).kind is Kind.TOOL_ERROR


KILLED_BY_THE_KERNEL: Final = CellExit(
    None, 0.0, 512 * 2**20, 0, "zygote", "", out_of_memory=True,
    usage=CellUsage((Member(41377, "blender", 1, 4.0, 400 * 2**20), Member(41376, "python3", 1, 0.1, 2**20)), 4.1),
)  # fmt: skip


@pytest.mark.parametrize(
    ("proof", "stopped"), [("cgroup", "killed"), ("namespace", "killed"), ("zygote", "best_effort")]
)
@pytest.mark.parametrize("report", [None, Report("ok", ran=True), Report("tool_error", ran=True)])
def test_what_the_kernel_ended_out_of_memory_has_passed_that_limit_whatever_was_said(
    report: Report | None, proof: Proof, stopped: str
) -> None:
    limits = Limits(memory_bytes=512 * 2**20)
    settled = evidence()._replace(settings=settings(limits), limits=limits)
    verdict = judge(settled._replace(death=replace(KILLED_BY_THE_KERNEL, proof=proof), report=report))
    assert (verdict.kind, verdict.cause, verdict.stopped) == (Kind.LIMIT_EXCEEDED, "memory", stopped)
    assert verdict.message == (
        "512 MiB of 512 MiB after 4.1 s; most of it in blender (pid 41377), which the kernel ended.\n"
        "  To raise it: toolcell config set tool.render.memory 1GiB"
    )


@pytest.mark.parametrize("limit", ["memory", "timeout", "__class__", "", "x" * 40])
def test_a_worker_can_claim_no_limit_but_those_that_a_tool_meets_as_an_error(limit: str) -> None:
    found = evidence(text="said")._replace(report=Report("tool_error", ran=True, limit=limit))
    assert (judge(found).kind, judge(found).message) == (Kind.TOOL_ERROR, "said")


def test_a_limit_that_is_off_cannot_have_been_met() -> None:
    found = evidence(text="said")._replace(report=Report("tool_error", ran=True, limit="open_files"))
    assert judge(found).kind is Kind.TOOL_ERROR


def test_a_stopped_call_of_a_server_is_never_said_to_have_stopped_by_itself() -> None:
    found = evidence(report="aborted", stop=Stop(Kind.ABORTED, "client", "aborted by you"), killed=2)
    verdict = judge(found._replace(server="git"))
    assert verdict.stopped == "killed"
    assert verdict.message == (
        "aborted by you; its MCP server was told to cancel it, and was ended with the call after 4 ms.\n"
        "What it had done until then is not undone."
    )
    unconfirmed = judge(found._replace(server="git", death=None))
    assert (unconfirmed.kind, unconfirmed.stopped) == (Kind.ABORTED, "unconfirmed")
    assert unconfirmed.message == (
        "aborted by you; its MCP server was told to cancel it, and nothing says whether it has stopped; "
        "that process gets no further call, and is ended when its other calls are over.\n"
        "What it had done until then is not undone."
    )
    kept = judge(found._replace(server="git", death=None, on_abort="keep"))
    assert (kept.stopped, 'the server stays, as on_abort is "keep".' in kept.message) == ("unconfirmed", True)


def test_a_call_whose_server_was_ended_for_another_says_so() -> None:
    found = evidence(killed=2)._replace(
        report=None, server="git", ended_for="another call of it, c-2, did not stop"
    )
    verdict = judge(found)
    assert (verdict.kind, verdict.cause) == (Kind.CRASHED, "server_ended")
    assert verdict.message.endswith(", because another call of it, c-2, did not stop.")


@pytest.mark.parametrize(("server", "key"), [("git", "source.git.memory"), ("", "tool.render.memory")])
def test_a_limit_of_a_server_s_cell_is_raised_at_its_source(server: str, key: str) -> None:
    limits = Limits(memory_bytes=2**20)
    found = evidence(stop=Stop(Kind.LIMIT_EXCEEDED, "memory", "2 MiB of memory"))
    found = found._replace(server=server, limits=limits, settings=settings(limits))
    assert f"toolcell config set {key} 2MiB" in judge(found).message
