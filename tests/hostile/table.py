"""The attacks: for each what its success is, how its call ends, and which profiles do not prevent it.

`attacks/NAME.py` is the tool; its docstring says what it does. `succeeded` looks at the target after the
call, from outside of the cell. With `succeeds_unconfined` the attack succeeds under `none`, where only the
keeper, the limits and the preparation of every cell are in its way: this proves that `succeeded` can see it.
After every attack the test checks that the daemon and a tool of another project work and that nothing is left
on the machine; an attack whose only aim is to prevent that has `never` as its success.

An ending is words such as `ok`, or `crashed/SIGSEGV`: kinds of outcome, with the cause where it matters.
"""

from __future__ import annotations

import ctypes
import os
import platform
import socket
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from tests.hostile.guard import GUARDED
from tests.hostile.target import KEPT, Target

__all__ = ["ATTACKS", "ATTACKS_DIRECTORY", "Attack", "Profile"]

Profile: TypeAlias = Literal["none", "baseline", "strict"]
Success: TypeAlias = Callable[[Target], bool]

ATTACKS_DIRECTORY: Final = Path(__file__).parent / "attacks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One attack."""

    name: str
    kind: str
    succeeded: Success
    succeeds_unconfined: bool = False
    """Whether it succeeds under `none`."""
    endings: str = "ok tool_error"
    """How its call may end when it is prevented; mostly an exception of the tool says what was refused."""
    limits: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Keys of its own [tool.NAME]."""
    root: Literal["", "differs", "needed"] = ""
    """`differs` where the kernel checks root by other rules than a user: capabilities, tracing, signals, limits of a
    user; `needed` where a user could never succeed. Root's attacks on the rest would repeat the user's."""
    neighbour: bool = False
    """Whether another tool runs at the same time, as the victim."""
    not_prevented: Mapping[Profile, str] = field(default_factory=dict[Profile, str])
    """Profiles that do not prevent it, each with the reason; it must succeed there, or the entry is out of date."""
    while_it_runs: Callable[[Target], bool] | None = None
    """Looked at until it is true or the call has ended, for an effect that is gone afterwards; becomes `Target.seen`."""
    missing: Callable[[], str] = lambda: ""
    """What this host lacks for it; empty where it lacks nothing."""


# When an attack has succeeded


def never(target: Target) -> bool:
    """For an attack that only tries to disturb the daemon, or to leave something."""
    return False


def has_secret(target: Target) -> bool:
    return target.has_secret()


def returned(what: str) -> Success:
    return lambda target: target.has_secret(what)


def planted(target: Target) -> bool:
    return os.path.lexists(target.outside / "planted")


def changed(target: Target) -> bool:
    kept = target.outside / "kept"
    return not kept.exists() or kept.read_text() != KEPT


def reached(service: str) -> Success:
    return lambda target: target.reached(service)


def victim_changed(target: Target) -> bool:
    return target.victim_changed()


def processes_left(target: Target) -> bool:
    return bool(target.alive())


def survived(target: Target) -> bool:
    """It kept more than its limit until it returned."""
    return (target.project / "survived").exists()


def worked(target: Target) -> bool:
    return target.worked_after_result()


def worked_awake(target: Target) -> bool:
    """A process that continues itself is stopped for a moment only."""
    return not target.ended_before_its_work()


def seen(target: Target) -> bool:
    return target.seen


def neighbour_harmed(target: Target) -> bool:
    return target.neighbour_result != "unharmed"


def daemon_grew(target: Target) -> bool:
    return target.daemon_memory_bytes() > 400 * 2**20


# What a host may lack


def no_x86() -> str:
    return "" if platform.machine() == "x86_64" else "on x86-64 only"


def lowest_priority() -> str:
    return "this process has the lowest priority already" if os.nice(0) == 19 else ""


def no_ipv6() -> str:
    try:
        with socket.socket(socket.AF_INET6) as any_socket:
            any_socket.bind(("::1", 0))
    except OSError:
        return "no IPv6 on loopback"
    return ""


def no_family(family: int, name: str) -> Callable[[], str]:
    def missing() -> str:
        try:
            socket.socket(family, socket.SOCK_STREAM).close()
        except OSError:
            return f"no sockets of {name}"
        return ""

    return missing


def no_protocol(number: int, name: str) -> Callable[[], str]:
    def missing() -> str:
        try:
            socket.socket(socket.AF_INET, socket.SOCK_STREAM, number).close()
        except OSError:
            return f"no {name}"
        return ""

    return missing


def no_disk() -> str:
    return "" if disk() else "no block device"


def disk() -> str:
    """The block device that the root directory is on; empty where it is on none."""
    for name in os.listdir("/dev"):
        status = os.lstat(f"/dev/{name}")
        if stat.S_ISBLK(status.st_mode) and status.st_rdev == os.stat("/").st_dev:
            return f"/dev/{name}"
    return ""


def no_groups() -> str:
    return "" if groups() else "no control groups"


def groups() -> str:
    """The top of the control groups of version 2."""
    tops = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
    return next((top for top in tops if os.path.exists(f"{top}/cgroup.procs")), "")


def memory_is_held() -> str:
    """Where a control group counts what is in memory, a cell may have files there."""
    own = next((line[3:] for line in Path("/proc/self/cgroup").read_text().split() if line[:3] == "0::"), "")
    try:
        controllers = Path(f"{groups()}{own.rstrip('/')}/cgroup.controllers").read_text().split()
    except OSError:
        return ""
    return "a control group may hold memory, and files in memory are allowed then" * ("memory" in controllers)


def setting(path: str, *forbidding: str) -> Callable[[], str]:
    """A kernel setting that forbids it for all users."""

    def missing() -> str:
        try:
            value = Path(path).read_text().strip()
        except OSError:
            return f"no {path}"
        return f"{path} is {value}" if value in forbidding else ""

    return missing


def no_system_call(number_x86: int, number_arm: int) -> Callable[[], str]:
    def missing() -> str:
        number = number_x86 if platform.machine() == "x86_64" else number_arm
        libc = ctypes.CDLL(None, use_errno=True)
        libc.syscall(ctypes.c_long(number), -1, -1, -1, -1, -1)
        return "the kernel was built without it" if ctypes.get_errno() == 38 else ""

    return missing


# Why a profile does not prevent an attack

BY_LANDLOCK = "Landlock has no right for it; only a view without the file prevents it"
SHARED_TEMPORARY = "it writes to the shared /tmp, which is not measured"
IN_THE_KERNEL = "the content of pipes is kernel memory: a control group counts it, the meter does not; a user has 64 MiB of it"
UNCOUNTED = "no process's usage includes a memfd, and only the filter of a confined cell refuses it"
BETWEEN_LOOKS = "no process has the segments when the meter looks; confined cells have none that large"
WITHIN: Mapping[Profile, str] = (
    {}
    if GUARDED
    else {"baseline": "Landlock only adds rights: it cannot exclude a path below a writable directory"}
)
"""What a guard prevents."""


def _attacks() -> tuple[Attack, ...]:
    found: list[Attack] = []
    as_root = {"root": "differs"}

    def add(
        kind: str, *entries: tuple[str, Success] | tuple[str, Success, dict[str, Any]], **common: Any
    ) -> None:
        for name, succeeded, *rest in entries:
            found.append(
                Attack(name=name, kind=kind, succeeded=succeeded, **{**common, **(rest[0] if rest else {})})
            )

    add(
        "filesystem",
        ("read_home_key", has_secret),
        ("read_key_through_symlink", has_secret),
        ("read_key_by_child", has_secret),
        ("list_home", has_secret),
        ("append_to_profile", lambda target: (target.home / ".bashrc").read_text() != KEPT),
        ("write_outside", planted),
        ("write_through_parent", planted),
        ("symlink_outside", planted),
        ("hardlink_in", has_secret),
        ("rename_out", planted),
        ("rename_in", has_secret),
        ("unlink_outside", changed),
        ("truncate_outside", changed),
        ("make_directory_outside", planted),
        ("make_fifo_outside", planted),
        ("bind_socket_outside", planted),
        ("plant_startup_file", lambda target: any(target.home.rglob("*.pth"))),
        ("rewrite_other_tool", lambda target: (target.outside / "tools" / "innocent.py").read_text() != KEPT),
        ("rewrite_own_file", lambda target: target.own_file_changed(), {"not_prevented": WITHIN}),
        ("plant_git_hook", lambda target: (target.project / ".git/hooks/pre-commit").exists(), {"not_prevented": WITHIN}),
        ("set_git_configuration", lambda target: (target.project / ".git/config").read_text() != KEPT, {"not_prevented": WITHIN}),
        ("replace_git_directory", lambda target: (target.project / ".git/hooks/pre-commit").exists(), {"not_prevented": WITHIN}),
        ("chmod_outside", lambda target: (target.outside / "secret").stat().st_mode & 0o777 == 0o777, {"not_prevented": {"baseline": BY_LANDLOCK}}),
        ("touch_outside", lambda target: (target.outside / "kept").stat().st_mtime == 1, {"not_prevented": {"baseline": BY_LANDLOCK}}),
        ("set_attribute_outside", lambda target: "user.planted" in os.listxattr(target.outside / "kept"), {"not_prevented": {"baseline": BY_LANDLOCK}}),
        ("stat_outside", returned("it has 31 bytes"), {"not_prevented": {"baseline": BY_LANDLOCK}}),
        ("watch_outside", returned("it watches")),
        ("lock_outside", seen, {"while_it_runs": Target.locked}),
        ("lease_file", seen, {"while_it_runs": Target.leased}),
        ("run_program_outside", returned(" ran")),
        ("read_shadow", returned("it holds"), {"root": "needed"}),
        ("open_kernel_setting", returned("it may be written"), {"root": "needed"}),
        ("leave_control_group", returned("it moved"), {"root": "needed", "missing": no_groups}),
        ("write_terminal", lambda target: target.typed()),
        ("type_into_terminal", lambda target: target.typed(), {"missing": setting("/proc/sys/dev/tty/legacy_tiocsti", "0")}),
        ("fill_shared_memory", lambda target: bool(target.shared_memory())),
        succeeds_unconfined=True,
    )  # fmt: skip
    add(
        "filesystem",
        ("read_block_device", returned("it gave 16"), {"root": "needed", "missing": no_disk}),
        ("make_block_device", lambda target: os.path.lexists(target.project / "disk")),
        ("overwrite_running_program", returned("it may be written")),
        ("open_file_by_handle", returned("it is open")),
        ("follow_daemon_root", has_secret),
        root="differs",
    )
    add(
        "neighbours",
        ("read_operator_token", returned("the token is")),
        ("reach_daemon_socket", returned("it answered with")),
        ("plant_beside_socket", lambda target: target.planted_beside("daemon_socket")),
        ("read_state", returned("SQLite format")),
        ("write_state", lambda target: target.planted_beside("daemon_state")),
        (
            "write_configuration",
            lambda target: target.tag in Path(target.daemon["daemon_config"]).read_text(),
        ),
        ("read_neighbour_scratch", lambda target: target.has_secret(), {"neighbour": True}),
        ("read_log", returned("it begins: ")),
        succeeds_unconfined=True,
    )
    add(
        "neighbours",
        ("kill_neighbour", neighbour_harmed, {**as_root, "neighbour": True}),
        ("read_neighbour_memory", returned("it is open"), {**as_root, "neighbour": True}),
        ("steal_neighbours_descriptor", returned("stolen"), {**as_root, "neighbour": True}),
        ("plant_pipe_as_tool", never),
        ("plant_endless_tool", never),
        ("plant_loop_of_directories", never),
        ("plant_disguised_tool", lambda target: target.secret in target.catalog),
        ("leave_many_files", never, {"limits": {"timeout": 18}}),
        (
            "leave_in_scratch",
            lambda target: target.found_in_scratch(),
            {"not_prevented": {"none": SHARED_TEMPORARY}},
        ),
    )
    add(
        "network",
        ("connect_tcp", reached("tcp")),
        ("connect_tcp6", reached("tcp6"), {"missing": no_ipv6}),
        ("connect_fast_open", reached("tcp")),
        ("connect_mptcp", reached("tcp"), {"missing": no_protocol(262, "Multipath TCP")}),
        ("send_udp", reached("udp")),
        ("connect_by_child", reached("tcp")),
        ("connect_by_thread", reached("tcp")),
        ("connect_at_import", reached("tcp")),
        ("reach_agent_socket", reached("agent")),
        ("reach_agent_by_child", reached("agent")),
        ("reach_agent_by_datagram", reached("log")),
        ("reach_abstract_socket", reached("abstract")),
        ("send_to_unnamed_peer", reached("log")),
        ("list_interfaces", lambda target: target.knows_interfaces()),
        ("make_vsock", returned("it was made"), {"missing": no_family(socket.AF_VSOCK, "VSOCK")}),
        ("listen_on_host", seen, {"while_it_runs": Target.accepts_connection}),
        succeeds_unconfined=True,
    )
    add(
        "network",
        ("make_raw_socket", returned("it was made")),
        ("make_packet_socket", returned("it was made")),
        root="differs",
    )
    add(
        "processes",
        ("lower_victims_limits", victim_changed),
        (
            "renice_victim",
            victim_changed,
            {"missing": lowest_priority},
        ),
        ("idle_victim", victim_changed),
        (
            "pin_victim",
            victim_changed,
            {"missing": lambda: "" if (os.cpu_count() or 1) > 1 else "one processor"},
        ),
        root="differs",
        succeeds_unconfined=True,
    )
    add(
        "processes",
        ("daemonise", processes_left),
        ("leave_nohup", processes_left),
        ("crash_and_leave", processes_left, {"endings": "crashed/SIGSEGV"}),
        ("fork_chain", processes_left),
        ("stop_children", processes_left),
        ("hold_output_open", processes_left),
        ("stop_itself", never, {"endings": "timed_out/timeout", "limits": {"timeout": 1}}),
        ("ignore_everything", never, {"endings": "timed_out/timeout", "limits": {"timeout": 1}}),
        ("raise_priority", returned("not behind"), {**as_root, "missing": lowest_priority}),
        ("kill_victim", victim_changed, as_root),
        ("kill_daemon", never, as_root),
        ("kill_parent", never, as_root),
        ("kill_all", victim_changed, {**as_root, "endings": "ok tool_error crashed/SIGKILL"}),
        ("kill_by_pidfd", victim_changed, as_root),
        ("kill_by_owner", victim_changed, as_root),
        ("trace_victim", victim_changed, as_root),
    )
    add(
        "secrets",
        ("read_victim_command", has_secret),
        ("find_commands", has_secret),
        succeeds_unconfined=True,
    )
    add(
        "secrets",
        ("read_daemon_environment", lambda target: target.has_daemon_secret()),
        ("read_victim_environment", has_secret),
        ("read_zygote_environment", lambda target: target.has_daemon_secret()),
        ("read_own_environment", lambda target: target.has_daemon_secret()),
        ("read_child_environment", lambda target: target.has_daemon_secret()),
        ("read_victim_memory", has_secret),
        ("read_daemon_memory", returned("it is open")),
        ("copy_victim_memory", returned("it may look")),
        ("steal_descriptor", returned("stolen")),
        ("list_descriptors", lambda target: target.has_daemon_descriptors()),
        root="differs",
    )
    add(
        "kernel surface",
        ("enter_user_namespace", returned("it was entered")),
        ("clone_user_namespace", returned("it was entered")),
        ("clone3_user_namespace", returned("it was entered")),
        ("mount_over", returned("it was mounted")),
        ("use_keyring", lambda target: target.in_keyring(), {"missing": no_system_call(248, 217)}),
        ("make_io_uring", returned("it was made"), {"missing": setting("/proc/sys/kernel/io_uring_disabled", "1", "2")}),
        ("make_userfaultfd", returned("it was made"), {"missing": no_system_call(323, 282)}),
        ("watch_everything", returned("it watches"), {"missing": no_system_call(300, 262)}),
        ("turn_randomness_off", returned("it is off")),
        ("trace_child", returned("it is traced")),
        ("change_descriptor_table", returned("it may look"), {"missing": no_x86}),
        ("call_by_int80", returned("it answered"), {"missing": no_x86, "endings": "ok tool_error crashed"}),
        ("open_performance_counter", returned("it is open"), {"missing": setting("/proc/sys/kernel/perf_event_paranoid", "3", "4")}),
        ("leave_shared_memory", lambda target: bool(target.system_v())),
        ("leave_semaphores", lambda target: bool(target.system_v())),
        ("leave_messages", lambda target: bool(target.system_v())),
        ("make_shared_queue", lambda target: target.queue()),
        ("run_from_memory", returned("it ran"), {"missing": memory_is_held}),
        root="differs",
        succeeds_unconfined=True,
    )  # fmt: skip
    add(
        "kernel surface",
        ("unmount_view", returned("taken off")),
        ("open_mount_tree", returned("it is open")),
        ("change_root", returned("changed")),
        ("leave_namespaces", returned("they were left")),
        ("load_bpf", returned("it was loaded")),
        ("call_by_x32", returned("it answered"), {"missing": no_x86, "endings": "ok tool_error crashed"}),
        ("load_module", returned("it may load")),
        ("load_kernel", returned("it may load")),
        ("restart_machine", returned("it may restart")),
        ("read_kernel_log", returned("it reads")),
        ("gain_by_setuid", returned("privileges can be had")),
        root="differs",
    )
    memory = {"limits": {"memory": "128MiB"}, "endings": "limit_exceeded/memory"}
    add(
        "resources",
        ("fork_bomb", survived, {**as_root, "limits": {"processes": 20}, "endings": "limit_exceeded/processes tool_error"}),
        ("fork_tree", survived, {**as_root, "limits": {"processes": 20}, "endings": "limit_exceeded/processes tool_error"}),
        ("thread_bomb", survived, {**as_root, "limits": {"processes": 20}, "endings": "limit_exceeded/processes tool_error"}),
        ("memory_bomb", survived, memory),
        ("memory_by_children", survived, memory),
        ("memory_in_files", survived, {**memory, "not_prevented": {"none": UNCOUNTED}, "endings": "limit_exceeded/memory tool_error"}),
        ("memory_shared", survived, memory),
        ("memory_in_page_tables", survived, memory),
        ("memory_in_system_v", survived, {**memory, "endings": "limit_exceeded/memory tool_error"}),
        ("memory_in_pipes", survived, {**as_root, "not_prevented": dict.fromkeys(("none", "baseline", "strict"), IN_THE_KERNEL), "limits": {"memory": "32MiB"}}),
        ("fill_scratch", survived, {"not_prevented": {"none": SHARED_TEMPORARY}, "limits": {"disk": "16MiB"}, "endings": "limit_exceeded/disk tool_error"}),
        ("open_everything", returned("far too many"), {"limits": {"open_files": 64}}),
        ("write_huge_file", lambda target: target.largest_file_bytes() > 2**20, {"limits": {"file_size": "1MiB"}, "endings": "limit_exceeded/file_size"}),
        ("raise_limits", returned("raised"), as_root),
        ("spin", survived, {"limits": {"cpu": 1}, "endings": "limit_exceeded/cpu"}),
        ("spin_by_children", survived, {"limits": {"cpu": 1}, "endings": "limit_exceeded/cpu"}),
        ("dump_core", lambda target: any(target.project.glob("core*")), {"endings": "crashed/SIGABRT"}),
        ("flood_output", daemon_grew),
        ("flood_one_line", daemon_grew),
        ("print_bytes", never),
        ("return_too_much", daemon_grew),
    )  # fmt: skip
    add(
        "resources",
        ("memory_in_messages", returned("more than ten"), {"limits": {"memory": "32MiB"}}),
        ("memory_in_sockets", returned("far too much")),
        ("take_queues", returned("it has one")),
        ("take_all_queues", returned("no bytes are left")),
        ("take_watches", returned("it has 100"), {"endings": "tool_error limit_exceeded/open_files"}),
        ("take_all_watches", returned("files: most")),
        ("take_requests", returned("it has eight"), {"missing": no_system_call(206, 0)}),
        root="differs",
        succeeds_unconfined=True,
    )
    in_sessions = {
        "limits": {"processes": 20, "timeout": 8},
        "endings": "ok limit_exceeded/processes tool_error",
    }
    add(
        "resources",
        ("swarm", survived, in_sessions),
        ("take_timers", returned("it has thousands")),
        ("fill_inodes", survived, {"not_prevented": {"none": SHARED_TEMPORARY}, "limits": {"disk": "4MiB"}, "endings": "limit_exceeded/disk tool_error"}),
        ("memory_in_detached_segments", survived, {**memory, "not_prevented": {"none": BETWEEN_LOOKS}, "endings": "limit_exceeded/memory tool_error"}),
        root="differs",
    )  # fmt: skip
    reused = {"limits": {"isolation": "worker"}, "endings": "ok"}
    add(
        "after the result",
        ("spin_after_result", worked, reused),
        ("sleep_after_result", worked, reused),
        ("tick_after_result", worked, reused),
        ("fork_after_result", worked, reused),
        (
            "grow_after_result",
            worked,
            {"limits": {"isolation": "worker", "memory": "128MiB"}, "endings": "ok"},
        ),
        ("wake_itself", worked_awake, reused),
        root="differs",
    )
    protocol = {"endings": "crashed/protocol crashed"}
    add(
        "protocol",
        ("write_garbage", never, protocol),
        ("write_text_as_frames", never, protocol),
        ("write_half_a_frame", never, {"limits": {"timeout": 1}, "endings": "timed_out/timeout"}),
        ("announce_huge_frame", never, protocol),
        ("close_protocol", never, protocol),
        ("close_everything", never, protocol),
        ("print_into_protocol", never, protocol),
        ("shut_protocol_down", never, {"limits": {"timeout": 1}, "endings": "ok crashed timed_out/timeout"}),
        ("pass_descriptors", returned("passed"), {"endings": "ok"}),
        ("take_life_line", returned("it was sent"), {"root": "differs", "endings": "ok"}),
        ("read_protocol", returned("it heard")),
        ("forge_result_of_another", returned("forged"), {"endings": "ok"}),
        ("forge_unknown_word", never, protocol),
        ("forge_wrong_types", never, {"endings": "crashed/protocol internal/failure"}),
        (
            "forge_infinite_usage",
            lambda target: target.has_absurd_usage(),
            {"endings": "ok crashed/protocol"},
        ),
        ("forge_new_tools", lambda target: "good" in target.catalog, {"endings": "ok crashed/protocol"}),
        ("forge_hello", never, {"endings": "ok crashed/protocol"}),
        ("forge_failure", never, {"endings": "ok crashed/protocol"}),
        ("forge_questions", daemon_grew, {"endings": "ok crashed/protocol"}),
        ("nest_deeply", never, protocol),
        ("impersonate_keeper", never, {"endings": "ok crashed tool_error"}),
    )
    add(
        "Python",
        ("replace_runtime", never, {"limits": {"timeout": 1}, "endings": "timed_out/timeout"}),
        ("replace_output", never, {"endings": "ok"}),
        ("raise_when_shown", never, {"endings": "tool_error"}),
        ("return_unshowable", never),
        ("raise_system_exit", never, {"endings": "tool_error"}),
        ("raise_keyboard_interrupt", never, {"endings": "tool_error"}),
        ("exit_at_once", never, {"endings": "crashed"}),
        ("segfault", never, {"endings": "crashed/SIGSEGV"}),
        ("overflow_stack", never, {"endings": "crashed tool_error limit_exceeded/memory"}),
        ("kill_itself", never, {"endings": "crashed/SIGKILL"}),
        ("hang_at_exit", never, {"endings": "ok"}),
        ("leave_thread", never, {"endings": "ok"}),
        ("return_nonsense", never),
        ("return_surrogates", never),
        ("return_deep", never),
        ("return_cycle", never, {"endings": "tool_error"}),
        ("swallow_abort", never, {"limits": {"timeout": 1}, "endings": "timed_out/timeout"}),
        ("hold_interpreter", never, {"limits": {"timeout": 1}, "endings": "timed_out/timeout"}),
        ("hang_at_import", never, {"endings": "refused"}),
        ("exit_at_import", never, {"endings": "refused"}),
        ("raise_at_import", never, {"endings": "refused"}),
        ("flood_at_import", daemon_grew, {"endings": "ok refused"}),
        ("fork_at_import", processes_left, {"endings": "ok refused"}),
        ("forge_tool_name", never, {"endings": "refused"}),
    )
    return tuple(found)


ATTACKS: Final = _attacks()
