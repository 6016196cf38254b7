"""Every sin: what its attacker got if he won, how its call is to end, and what keeps it from being tried.

The file of the same name in `sins/` is the tool; its docstring says what he wants. `won` looks at the
world after the call, from outside; `True` of `succeeds` says that he wins under `none`, where only the
keeper, the limits and the hygiene of every cell are in his way: that is the proof that `won` can see it.
For every sin alike the test looks whether the daemon and another project's tool work on and whether
anything is left on the machine; a sin that wants no more than that has `NOTHING` to win beside.

An ending is words such as `ok`, or `crashed/SIGSEGV`: kinds of outcome, with the cause where it counts.
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

from tests.hostile.target import KEPT, World

__all__ = ["SINS", "SINS_DIRECTORY", "Profile", "Sin"]

Profile: TypeAlias = Literal["none", "baseline", "strict"]
Won: TypeAlias = Callable[[World], bool]

SINS_DIRECTORY: Final = Path(__file__).parent / "attacks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sin:
    """One way to misbehave."""

    name: str
    kind: str
    won: Won
    succeeds: bool = False
    """Under `none`."""
    ends: str = "ok tool_error"
    """How its call may end, in every profile; where a wall is met, an exception of the tool tells of it."""
    limits: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Keys of its own [tool.NAME]."""
    needs: Literal["", "root"] = ""
    """Who it must be tried by to be worth trying; what only root could do is no news for others."""
    neighbour: bool = False
    """Another tool runs at the same time and is to be hurt."""
    uncovered: Mapping[Profile, str] = field(default_factory=dict[Profile, str])
    """Profiles that do not keep him from it, each with the reason; he must win there, or the entry is out of date."""
    while_it_runs: Callable[[World], bool] | None = None
    """Looked at until it is true or the call is over; for what cannot be seen afterwards. Its answer is `World.seen`."""
    absent: Callable[[], str] = lambda: ""
    """Why this host has not what he needs; empty where it has."""


# What an attacker has won


def NOTHING(world: World) -> bool:
    return False


def learned(world: World) -> bool:
    return world.learned()


def told(what: str) -> Won:
    return lambda world: world.learned(what)


def planted(world: World) -> bool:
    return os.path.lexists(world.outside / "planted")


def changed(world: World) -> bool:
    kept = world.outside / "kept"
    return not kept.exists() or kept.read_text() != KEPT


def knocked(door: str) -> Won:
    return lambda world: world.reached(door)


def hurt(world: World) -> bool:
    return world.victim_hurt()


def lives(world: World) -> bool:
    return bool(world.alive())


def survived(world: World) -> bool:
    """It had more than its limit for as long as it wanted."""
    return (world.project / "survived").exists()


def seen(world: World) -> bool:
    return world.seen


def neighbour_hurt(world: World) -> bool:
    return world.neighbour_said != "unharmed"


def daemon_swollen(world: World) -> bool:
    return world.daemon_memory_bytes() > 400 * 2**20


# What a host may lack


def no_x86() -> str:
    return "" if platform.machine() == "x86_64" else "a gate of x86 alone"


def no_ipv6() -> str:
    try:
        with socket.socket(socket.AF_INET6) as any_socket:
            any_socket.bind(("::1", 0))
    except OSError:
        return "no IPv6 on loopback"
    return ""


def no_family(family: int, name: str) -> Callable[[], str]:
    def absent() -> str:
        try:
            socket.socket(family, socket.SOCK_STREAM).close()
        except OSError:
            return f"no sockets of {name}"
        return ""

    return absent


def no_protocol(number: int, name: str) -> Callable[[], str]:
    def absent() -> str:
        try:
            socket.socket(socket.AF_INET, socket.SOCK_STREAM, number).close()
        except OSError:
            return f"no {name}"
        return ""

    return absent


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
    """A setting of the kernel that forbids it to everybody."""

    def absent() -> str:
        try:
            value = Path(path).read_text().strip()
        except OSError:
            return f"no {path}"
        return f"{path} is {value}" if value in forbidding else ""

    return absent


def no_system_call(number_x86: int, number_arm: int) -> Callable[[], str]:
    def absent() -> str:
        number = number_x86 if platform.machine() == "x86_64" else number_arm
        libc = ctypes.CDLL(None, use_errno=True)
        libc.syscall(ctypes.c_long(number), -1, -1, -1, -1, -1)
        return "the kernel was built without it" if ctypes.get_errno() == 38 else ""

    return absent


# Why a profile does not keep him from it

BY_LANDLOCK = "Landlock knows no right for it; only a view without the file keeps it away"
SHARED_TEMPORARY = "it writes to /tmp, which is everybody's and is not measured"
IN_THE_KERNEL = "what lies in pipes is the kernel's memory: a control group counts it, the meter does not; a user has 64 MiB of it"
UNCOUNTED = "a memfd is in no process's count, and only the filter of a confined cell refuses it"
WITHIN = "Landlock only adds rights: below a writable directory nothing can be taken out"


def _sins() -> tuple[Sin, ...]:
    found: list[Sin] = []

    def sins(kind: str, *entries: tuple[str, Won] | tuple[str, Won, dict[str, Any]], **common: Any) -> None:
        for name, won, *rest in entries:
            found.append(Sin(name=name, kind=kind, won=won, **{**common, **(rest[0] if rest else {})}))

    sins(
        "filesystem",
        ("read_home_key", learned),
        ("read_key_through_symlink", learned),
        ("read_key_by_child", learned),
        ("list_home", learned),
        ("append_to_profile", lambda world: (world.home / ".bashrc").read_text() != KEPT),
        ("write_outside", planted),
        ("write_through_parent", planted),
        ("symlink_outside", planted),
        ("hardlink_in", learned),
        ("rename_out", planted),
        ("rename_in", learned),
        ("unlink_outside", changed),
        ("truncate_outside", changed),
        ("make_directory_outside", planted),
        ("make_fifo_outside", planted),
        ("bind_socket_outside", planted),
        ("plant_startup_file", lambda world: any(world.home.rglob("*.pth"))),
        ("rewrite_other_tool", lambda world: (world.outside / "tools" / "innocent.py").read_text() != KEPT),
        ("rewrite_own_file", lambda world: world.own_file_changed(), {"uncovered": {"baseline": WITHIN}}),
        ("plant_git_hook", lambda world: (world.project / ".git/hooks/pre-commit").exists(), {"uncovered": {"baseline": WITHIN}}),
        ("set_git_configuration", lambda world: (world.project / ".git/config").read_text() != KEPT, {"uncovered": {"baseline": WITHIN}}),
        ("replace_git_directory", lambda world: (world.project / ".git/hooks/pre-commit").exists(), {"uncovered": {"baseline": WITHIN}}),
        ("chmod_outside", lambda world: (world.outside / "secret").stat().st_mode & 0o777 == 0o777, {"uncovered": {"baseline": BY_LANDLOCK}}),
        ("touch_outside", lambda world: (world.outside / "kept").stat().st_mtime == 1, {"uncovered": {"baseline": BY_LANDLOCK}}),
        ("set_attribute_outside", lambda world: "user.planted" in os.listxattr(world.outside / "kept"), {"uncovered": {"baseline": BY_LANDLOCK}}),
        ("stat_outside", told("it has 31 bytes"), {"uncovered": {"baseline": BY_LANDLOCK}}),
        ("watch_outside", told("it watches")),
        ("lock_outside", seen, {"while_it_runs": World.locked}),
        ("run_program_outside", told(" ran")),
        ("read_shadow", told("it holds"), {"needs": "root"}),
        ("open_kernel_setting", told("it may be written"), {"needs": "root"}),
        ("leave_control_group", told("it moved"), {"needs": "root", "absent": no_groups}),
        ("write_terminal", lambda world: world.typed()),
        ("type_into_terminal", lambda world: world.typed(), {"absent": setting("/proc/sys/dev/tty/legacy_tiocsti", "0")}),
        ("fill_shared_memory", lambda world: bool(world.shared_memory())),
        succeeds=True,
    )  # fmt: skip
    sins(
        "filesystem",
        ("read_block_device", told("it gave 16"), {"needs": "root", "absent": no_disk}),
        ("make_block_device", lambda world: os.path.lexists(world.project / "disk")),
        ("overwrite_running_program", told("it may be written")),
        ("open_file_by_handle", told("it is open")),
        ("follow_daemon_root", learned),
    )
    sins(
        "neighbours",
        ("read_operator_token", told("the token is")),
        ("reach_daemon_socket", told("it answered with")),
        ("plant_beside_socket", lambda world: world.squatted("daemon_socket")),
        ("read_state", told("SQLite format")),
        ("write_state", lambda world: world.squatted("daemon_state")),
        ("write_configuration", lambda world: world.tag in Path(world.daemon["daemon_config"]).read_text()),
        ("read_neighbour_scratch", lambda world: world.learned(), {"neighbour": True}),
        ("read_log", told("it begins: ")),
        succeeds=True,
    )
    sins(
        "neighbours",
        ("kill_neighbour", neighbour_hurt, {"neighbour": True}),
        ("read_neighbour_memory", told("it is open"), {"neighbour": True}),
        ("steal_neighbours_descriptor", told("stolen"), {"neighbour": True}),
        ("plant_pipe_as_tool", NOTHING),
        ("plant_endless_tool", NOTHING),
        ("plant_loop_of_directories", NOTHING),
        ("plant_disguised_tool", lambda world: world.secret in world.catalog),
        ("leave_many_files", NOTHING),
        (
            "leave_in_scratch",
            lambda world: world.found_in_scratch(),
            {"uncovered": {"none": SHARED_TEMPORARY}},
        ),
    )
    sins(
        "network",
        ("connect_tcp", knocked("tcp")),
        ("connect_tcp6", knocked("tcp6"), {"absent": no_ipv6}),
        ("connect_fast_open", knocked("tcp")),
        ("connect_mptcp", knocked("tcp"), {"absent": no_protocol(262, "Multipath TCP")}),
        ("send_udp", knocked("udp")),
        ("connect_by_child", knocked("tcp")),
        ("connect_by_thread", knocked("tcp")),
        ("connect_at_import", knocked("tcp")),
        ("reach_agent_socket", knocked("agent")),
        ("reach_agent_by_child", knocked("agent")),
        ("reach_agent_by_datagram", knocked("log")),
        ("reach_abstract_socket", knocked("abstract")),
        ("send_to_unnamed_peer", knocked("log")),
        ("list_interfaces", lambda world: world.knows_interfaces()),
        ("make_vsock", told("it was made"), {"absent": no_family(socket.AF_VSOCK, "VSOCK")}),
        ("listen_on_host", seen, {"while_it_runs": World.came_in}),
        succeeds=True,
    )
    sins(
        "network",
        ("make_raw_socket", told("it was made")),
        ("make_packet_socket", told("it was made")),
    )
    sins(
        "processes",
        ("lower_victims_limits", hurt),
        (
            "renice_victim",
            hurt,
            {"absent": lambda: "everybody here is nice already" if os.nice(0) == 19 else ""},
        ),
        ("idle_victim", hurt),
        ("pin_victim", hurt, {"absent": lambda: "" if (os.cpu_count() or 1) > 1 else "one processor"}),
        succeeds=True,
    )
    sins(
        "processes",
        ("daemonise", lives),
        ("leave_nohup", lives),
        ("crash_and_leave", lives, {"ends": "crashed/SIGSEGV"}),
        ("fork_chain", lives),
        ("stop_children", lives),
        ("hold_output_open", lives),
        ("stop_itself", NOTHING, {"ends": "timed_out/timeout", "limits": {"timeout": 1}}),
        ("ignore_everything", NOTHING, {"ends": "timed_out/timeout", "limits": {"timeout": 1}}),
        ("kill_victim", hurt),
        ("kill_daemon", NOTHING),
        ("kill_parent", NOTHING),
        ("kill_all", hurt, {"ends": "ok tool_error crashed/SIGKILL"}),
        ("kill_by_pidfd", hurt),
        ("kill_by_owner", hurt),
        ("trace_victim", hurt),
    )
    sins(
        "secrets",
        ("read_victim_command", learned),
        ("find_commands", learned),
        succeeds=True,
    )
    sins(
        "secrets",
        ("read_daemon_environment", lambda world: world.daemon_secret_told()),
        ("read_victim_environment", learned),
        ("read_zygote_environment", lambda world: world.daemon_secret_told()),
        ("read_own_environment", lambda world: world.daemon_secret_told()),
        ("read_child_environment", lambda world: world.daemon_secret_told()),
        ("read_victim_memory", learned),
        ("read_daemon_memory", told("it is open")),
        ("copy_victim_memory", told("it may look")),
        ("steal_descriptor", told("stolen")),
        ("list_descriptors", lambda world: world.told_of_descriptors()),
    )
    sins(
        "kernel surface",
        ("enter_user_namespace", told("it was entered")),
        ("clone_user_namespace", told("it was entered")),
        ("clone3_user_namespace", told("it was entered")),
        ("mount_over", told("it was mounted")),
        ("use_keyring", lambda world: world.in_keyring(), {"absent": no_system_call(248, 217)}),
        ("make_io_uring", told("it was made"), {"absent": setting("/proc/sys/kernel/io_uring_disabled", "1", "2")}),
        ("make_userfaultfd", told("it was made"), {"absent": no_system_call(323, 282)}),
        ("watch_everything", told("it watches"), {"absent": no_system_call(300, 262)}),
        ("turn_randomness_off", told("it is off")),
        ("trace_child", told("it is traced")),
        ("change_descriptor_table", told("it may look"), {"absent": no_x86}),
        ("call_by_int80", told("it answered"), {"absent": no_x86, "ends": "ok tool_error crashed"}),
        ("open_performance_counter", told("it is open"), {"absent": setting("/proc/sys/kernel/perf_event_paranoid", "3", "4")}),
        ("leave_shared_memory", lambda world: bool(world.system_v())),
        ("leave_semaphores", lambda world: bool(world.system_v())),
        ("leave_messages", lambda world: bool(world.system_v())),
        ("make_shared_queue", lambda world: world.queue()),
        ("run_from_memory", told("it ran"), {"absent": memory_is_held}),
        succeeds=True,
    )  # fmt: skip
    sins(
        "kernel surface",
        ("unmount_view", told("taken off")),
        ("open_mount_tree", told("it is open")),
        ("change_root", told("changed")),
        ("leave_namespaces", told("they were left")),
        ("load_bpf", told("it was loaded")),
        ("call_by_x32", told("it answered"), {"absent": no_x86, "ends": "ok tool_error crashed"}),
        ("load_module", told("it may load")),
        ("load_kernel", told("it may load")),
        ("restart_machine", told("it may restart")),
        ("read_kernel_log", told("it reads")),
        ("gain_by_setuid", told("privileges can be had")),
    )
    memory = {"limits": {"memory": "128MiB"}, "ends": "limit_exceeded/memory"}
    sins(
        "resources",
        ("fork_bomb", survived, {"limits": {"processes": 20}, "ends": "limit_exceeded/processes tool_error"}),
        ("fork_tree", survived, {"limits": {"processes": 20}, "ends": "limit_exceeded/processes tool_error"}),
        ("thread_bomb", survived, {"limits": {"processes": 20}, "ends": "limit_exceeded/processes tool_error"}),
        ("memory_bomb", survived, memory),
        ("memory_by_children", survived, memory),
        ("memory_in_files", survived, {**memory, "uncovered": {"none": UNCOUNTED}, "ends": "limit_exceeded/memory tool_error"}),
        ("memory_shared", survived, memory),
        ("memory_in_system_v", survived, {**memory, "ends": "limit_exceeded/memory tool_error"}),
        ("memory_in_pipes", survived, {"uncovered": dict.fromkeys(("none", "baseline", "strict"), IN_THE_KERNEL), "limits": {"memory": "32MiB"}}),
        ("fill_scratch", survived, {"uncovered": {"none": SHARED_TEMPORARY}, "limits": {"disk": "16MiB"}, "ends": "limit_exceeded/disk tool_error"}),
        ("open_everything", told("far too many"), {"limits": {"open_files": 64}}),
        ("write_huge_file", lambda world: world.largest_file_bytes() > 2**20, {"limits": {"file_size": "1MiB"}, "ends": "limit_exceeded/file_size"}),
        ("raise_limits", told("raised")),
        ("spin", survived, {"limits": {"cpu": 1}, "ends": "limit_exceeded/cpu"}),
        ("spin_by_children", survived, {"limits": {"cpu": 1}, "ends": "limit_exceeded/cpu"}),
        ("dump_core", lambda world: any(world.project.glob("core*")), {"ends": "crashed/SIGABRT"}),
        ("flood_output", daemon_swollen),
        ("flood_one_line", daemon_swollen),
        ("print_bytes", NOTHING),
        ("return_too_much", daemon_swollen),
    )  # fmt: skip
    protocol = {"ends": "crashed/protocol crashed"}
    sins(
        "protocol",
        ("write_garbage", NOTHING, protocol),
        ("write_text_as_frames", NOTHING, protocol),
        ("write_half_a_frame", NOTHING, {"limits": {"timeout": 1}, "ends": "timed_out/timeout"}),
        ("announce_huge_frame", NOTHING, protocol),
        ("close_protocol", NOTHING, protocol),
        ("close_everything", NOTHING, protocol),
        ("print_into_protocol", NOTHING, protocol),
        ("shut_protocol_down", NOTHING, {"limits": {"timeout": 1}, "ends": "crashed timed_out/timeout"}),
        ("read_protocol", told("it heard")),
        ("forge_result_of_another", told("forged"), {"ends": "ok"}),
        ("forge_unknown_word", NOTHING, protocol),
        ("forge_wrong_types", NOTHING, {"ends": "crashed/protocol internal/failure"}),
        (
            "forge_infinite_usage",
            lambda world: world.told_figures_without_end(),
            {"ends": "ok crashed/protocol"},
        ),
        ("forge_new_tools", lambda world: "good" in world.catalog, {"ends": "ok crashed/protocol"}),
        ("forge_hello", NOTHING, {"ends": "ok crashed/protocol"}),
        ("forge_failure", NOTHING, {"ends": "ok crashed/protocol"}),
        ("forge_questions", daemon_swollen, {"ends": "ok crashed/protocol"}),
        ("nest_deeply", NOTHING, protocol),
        ("impersonate_keeper", NOTHING, {"ends": "ok crashed"}),
    )
    sins(
        "Python",
        ("replace_runtime", NOTHING, {"limits": {"timeout": 1}, "ends": "timed_out/timeout"}),
        ("replace_output", NOTHING, {"ends": "ok"}),
        ("raise_when_shown", NOTHING, {"ends": "tool_error"}),
        ("return_unshowable", NOTHING),
        ("raise_system_exit", NOTHING, {"ends": "tool_error"}),
        ("raise_keyboard_interrupt", NOTHING, {"ends": "tool_error"}),
        ("exit_at_once", NOTHING, {"ends": "crashed"}),
        ("segfault", NOTHING, {"ends": "crashed/SIGSEGV"}),
        ("overflow_stack", NOTHING, {"ends": "crashed tool_error limit_exceeded/memory"}),
        ("kill_itself", NOTHING, {"ends": "crashed/SIGKILL"}),
        ("hang_at_exit", NOTHING, {"ends": "ok"}),
        ("leave_thread", NOTHING, {"ends": "ok"}),
        ("return_nonsense", NOTHING),
        ("return_surrogates", NOTHING),
        ("return_deep", NOTHING),
        ("return_cycle", NOTHING, {"ends": "tool_error"}),
        ("swallow_abort", NOTHING, {"limits": {"timeout": 1}, "ends": "timed_out/timeout"}),
        ("hold_interpreter", NOTHING, {"limits": {"timeout": 1}, "ends": "timed_out/timeout"}),
        ("hang_at_import", NOTHING, {"ends": "refused"}),
        ("exit_at_import", NOTHING, {"ends": "refused"}),
        ("raise_at_import", NOTHING, {"ends": "refused"}),
        ("flood_at_import", daemon_swollen, {"ends": "ok refused"}),
        ("fork_at_import", lives, {"ends": "ok refused"}),
        ("forge_tool_name", NOTHING, {"ends": "refused"}),
    )
    return tuple(found)


SINS: Final = _sins()
