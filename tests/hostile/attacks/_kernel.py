"""System calls by number, bypassing the libraries; shared by the attacks, as a tool may import its neighbours."""

import ctypes
import os
import platform

NUMBERS = {
    "x86_64": {
        "add_key": 248, "bpf": 321, "clone": 56, "fanotify_init": 300, "io_uring_setup": 425, "kexec_load": 246,
        "keyctl": 250, "clone3": 435, "modify_ldt": 154, "open_by_handle_at": 304, "perf_event_open": 298,
        "personality": 135, "pidfd_getfd": 438, "pidfd_open": 434, "pidfd_send_signal": 424, "finit_module": 313,
        "process_vm_readv": 310, "process_vm_writev": 311, "ptrace": 101, "reboot": 169, "setns": 308, "syslog": 103,
        "userfaultfd": 323, "ioprio_set": 251, "sched_setscheduler": 144, "landlock_create_ruleset": 444,
        "fsopen": 430, "open_tree": 428, "io_setup": 206,
    },
    "aarch64": {
        "add_key": 217, "bpf": 280, "clone": 220, "fanotify_init": 262, "io_uring_setup": 425, "kexec_load": 104,
        "keyctl": 219, "clone3": 435, "open_by_handle_at": 265, "perf_event_open": 241, "personality": 92,
        "pidfd_getfd": 438, "pidfd_open": 434, "pidfd_send_signal": 424, "finit_module": 273, "process_vm_readv": 270,
        "process_vm_writev": 271, "ptrace": 117, "reboot": 142, "setns": 268, "syslog": 116, "userfaultfd": 282,
        "ioprio_set": 30, "sched_setscheduler": 119, "landlock_create_ruleset": 444, "fsopen": 430, "open_tree": 428,
        "io_setup": 0,
    },
}[platform.machine()]  # fmt: skip

libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def call(name: str, *arguments: object) -> int:
    wide = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    libc.syscall.restype = ctypes.c_long
    return checked(libc.syscall(ctypes.c_long(NUMBERS[name]), *wide))
