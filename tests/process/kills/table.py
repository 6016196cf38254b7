"""The kill matrix: the outcome of a call in each state, for each process and each harm done to it.

One line for each process and harm, one column for each state of a call. An entry is the kind of the call's
outcome; two kinds with a bar where both are right. Besides:

    a cell's process   its cell is empty within two seconds of the call's ending, unless the call ended well
                       and its worker lives on; the daemon serves the next call
    zygote             running calls finish, a stopped one too is replaced, and new cells come from the next
    daemon             its clients' calls end as `internal`, and its processes end within two seconds
    daemon, stopped    nothing happens until it continues; then every outcome is exact
    client             its calls are stopped after the linger; other clients are not affected
    client, stopped    its calls go on, and it receives their outcomes when it continues

A waiting call has no cell yet. It waits for the running one, whose process is harmed; then it runs.
"""

from __future__ import annotations

__all__ = ["HARMS", "MATRIX", "PROCESSES", "STATES", "expected"]

PROCESSES = ("daemon", "zygote", "keeper", "init", "worker", "grandchild", "client")
STATES = ("waiting", "starting", "running", "streaming", "asking", "aborting", "ending")
HARMS = ("SIGKILL", "SIGSTOP", "SIGSEGV", "out of memory", "exit 0", "closed descriptors")

# `refused` is BROKEN_TOOL, with the end of the file's worker. A call that was being aborted is aborted, and a call
# that had reported keeps the outcome that it reported.
MATRIX = """
                                   waiting    starting   running    streaming  asking     aborting   ending

    worker      SIGKILL            ok         refused    crashed    crashed    crashed    aborted    ok
    worker      SIGSTOP            ok         refused    timed_out  timed_out  timed_out  aborted    ok
    worker      SIGSEGV            ok         refused    crashed    crashed    crashed    aborted    ok
    worker      out_of_memory      ok         refused    limit      limit      limit      aborted    ok
    worker      exit_0             ok         refused    crashed    crashed    crashed    aborted    ok
    worker      closed_descriptors ok         refused    crashed    crashed    crashed    aborted    ok

    init        SIGKILL            ok         refused    crashed    crashed    crashed    aborted    ok
    init        SIGSTOP            ok         ok         ok         ok         ok         aborted    ok
    init        SIGSEGV            ok         ok         ok         ok         ok         aborted    ok
    init        out_of_memory      ok         ok         ok         ok         ok         aborted    ok
    init        exit_0             ok         refused    crashed    crashed    crashed    aborted    ok
    init        closed_descriptors ok         ok         ok         ok         ok         aborted    ok

    keeper      SIGKILL            ok         refused    crashed    crashed    crashed    aborted    ok
    keeper      SIGSTOP            ok         ok         ok         ok         ok         aborted    ok
    keeper      SIGSEGV            ok         refused    crashed    crashed    crashed    aborted    ok
    keeper      out_of_memory      ok         ok         ok         ok         ok         aborted    ok
    keeper      exit_0             ok         refused    crashed    crashed    crashed    aborted    ok
    keeper      closed_descriptors ok         refused    crashed    crashed    crashed    aborted    ok

    grandchild  SIGKILL            ok         ok         ok         ok         ok         aborted    ok
    grandchild  SIGSTOP            ok         ok         ok         ok         ok         aborted    ok
    grandchild  SIGSEGV            ok         ok         ok         ok         ok         aborted    ok
    grandchild  out_of_memory      ok         refused    limit      limit      limit      aborted    ok
    grandchild  exit_0             ok         ok         ok         ok         ok         aborted    ok
    grandchild  closed_descriptors ok         ok         ok         ok         ok         aborted    ok

    zygote      SIGKILL            ok         ok         ok         ok         ok         aborted    ok
    zygote      SIGSTOP            ok         ok         ok         ok         ok         aborted    ok
    zygote      SIGSEGV            ok         ok         ok         ok         ok         aborted    ok
    zygote      out_of_memory      ok         ok         ok         ok         ok         aborted    ok
    zygote      exit_0             ok         ok         ok         ok         ok         aborted    ok
    zygote      closed_descriptors ok         ok         ok         ok         ok         aborted    ok

    daemon      SIGKILL            internal   internal   internal   internal   internal   internal   internal
    daemon      SIGSTOP            ok         ok         ok         ok         ok         aborted    ok
    daemon      SIGSEGV            internal   internal   internal   internal   internal   internal   internal
    daemon      out_of_memory      ok|internal ok|internal ok|internal ok|internal ok|internal aborted|internal ok|internal
    daemon      exit_0             internal   internal   internal   internal   internal   internal   internal
    daemon      closed_descriptors internal   internal   internal   internal   internal   internal   internal

    client      SIGKILL            aborted    aborted    aborted    aborted    aborted    aborted    ok
    client      SIGSTOP            ok         ok         ok         ok         ok         aborted    ok
    client      SIGSEGV            aborted    aborted    aborted    aborted    aborted    aborted    ok
    client      out_of_memory      ok|aborted ok|aborted ok|aborted ok|aborted ok|aborted aborted    ok
    client      exit_0             aborted    aborted    aborted    aborted    aborted    aborted    ok
    client      closed_descriptors aborted    aborted    aborted    aborted    aborted    aborted    ok
"""


def expected() -> dict[tuple[str, str], dict[str, frozenset[str]]]:
    """How calls may end: by process and harm, then by state."""
    first, *lines = filter(None, map(str.split, MATRIX.splitlines()))
    return {
        (process, harm.replace("_", " ")): {
            state: frozenset(kinds.replace("limit", "limit_exceeded").split("|"))
            for state, kinds in zip(first, row, strict=True)
        }
        for process, harm, *row in lines
    }
