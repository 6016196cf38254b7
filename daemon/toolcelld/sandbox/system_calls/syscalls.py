"""Numbers of the system calls in the filters, for x86-64 and arm64.

A dash marks a call that arm64 never had. From 424 on, both architectures use the same numbers.
"""

from __future__ import annotations

from typing import Final

NEWEST: Final = 469
"""file_setattr of Linux 6.17, the newest call that was reviewed. Newer calls fail with ENOSYS."""

_TABLE: Final = """
acct               163  89      add_key            248 217      adjtimex           159 171
bpf                321 280      chmod               90   -      chroot             161  51
clock_adjtime      305 266      clock_settime      227 112      clone               56 220
clone3             435 435      creat               85   -      delete_module      176 106
bind                49 200      execve              59 221      execveat           322 281
fallocate          285  47      fanotify_init      300 262
fchmod              91  52      fchmodat           268  53      fchmodat2          452 452
fcntl               72  25
finit_module       313 273      fsconfig           431 431      fsmount            432 432
fsopen             430 430      fspick             433 433      init_module        175 105
inotify_init       253   -      inotify_init1      294  26      io_uring_enter     426 426
io_uring_register  427 427      io_uring_setup     425 425      ioctl               16  29
io_setup           206   0
ioperm             173   -      iopl               172   -      ioprio_set         251  30
kcmp               312 272      kexec_file_load    320 294      kexec_load         246 104
keyctl             250 219      listen              50 201
lookup_dcookie     212  18      memfd_create       319 279
memfd_secret       447 447      mknod              133   -      mknodat            259  33
modify_ldt         154   -      mount              165  40      mount_setattr      442 442
move_mount         429 429      mq_open            240 180      mq_unlink          241 181
msgctl              71 187      msgget              68 186      msgrcv              70 188
msgsnd              69 189      name_to_handle_at  303 264      nfsservctl         180  42
open                 2   -      open_by_handle_at  304 265      open_tree          428 428
open_tree_attr     467 467      openat             257  56      openat2            437 437
perf_event_open    298 241      personality        135  92      pidfd_getfd        438 438
pivot_root         155  41      prlimit64          302 261      process_vm_readv   310 270
process_vm_writev  311 271      ptrace             101 117      quotactl           179  60
quotactl_fd        443 443      reboot             169 142      request_key        249 218
sched_setaffinity  203 122      sched_setattr      314 274      sched_setparam     142 118
sched_setscheduler 144 119      semctl              66 191      semget              64 190
semop               65 193      semtimedop         220 192      setdomainname      171 162
sethostname        170 161      setns              308 268      setpriority        141 140
settimeofday       164 170      shmat               30 196      shmctl              31 195
shmget              29 194      socket              41 198      socketpair          53 199
swapoff            168 225      swapon             167 224      syslog             103 116
umount2            166  39      unshare            272  97      uselib             134   -
userfaultfd        323 282      vhangup            153  58
link                86   -      linkat             265  37
mkdir               83   -      mkdirat            258  34      rename              82   -
renameat           264  38      renameat2          316 276      symlink             88   -
symlinkat          266  36      truncate            76  45
brk                 12 214      exit                60  93      exit_group         231  94
futex              202  98      madvise             28 233      mmap                 9 222
mprotect            10 226      mremap              25 216      munmap              11 215
read                 0  63      rt_sigreturn        15 139      setitimer           38 103
write                1  64
clock_gettime      228 113      close                3  57      fstat                5  80
ftruncate           77  46      getdents64         217  61      getpid              39 172
getrandom          318 278      gettid             186 178      kill                62 129
lseek                8  62      newfstatat         262  79
pidfd_open         434 434      poll                 7   -      ppoll              271  73
readlink            89   -      readlinkat         267  78      restart_syscall    219 128
rt_sigaction        13 134      rt_sigprocmask      14 135      sendto              44 206
umask               95 166      wait4               61 260
"""


def _read(column: int) -> dict[str, int]:
    words = _TABLE.split()
    rows = zip(words[::3], words[1::3], words[2::3], strict=True)
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


NUMBERS: Final = {"x86_64": _read(1), "aarch64": _read(2)}
"""By the machine name of `uname`."""
