"""What the processes of calls share with their template, and so with each other: all of it is known, and nothing stays there."""

from __future__ import annotations

import pytest
from tests.daemons import RunningDaemon
from tests.process.test_call_processes import HEAD, called, configure

from toolcell.client import Kind

pytestmark = pytest.mark.anyio

PROFILES = ["baseline", "strict"]

SHARED = {
    "descriptor 0: /dev/null": "opened anew; the node is the machine's, and read-only under strict",
    "descriptor 1: pipe": "set again or compared; emptied by the daemon before each call",
    "descriptor 2: pipe": "as 1",
    "descriptor 4: socket": "set again or compared; emptied by the template",
    "descriptor 5: socket": "as 4",
    "descriptor 6: pipe": "set again or compared; a frame that is not whole ends the cell",
    "writable mount /tmp": "emptied; attributes, modes and flags of what stays are compared, times are set again",
    "writable mount /dev/shm": "as /tmp",
    "writable mount of the project": "what calls are to change",
}
"""Each object that outlives a call, with what becomes of it. Counters of the kernel, such as the next process number or the
packets of the loopback, are in no object that a call can set."""

SURVEY = """
    import stat

    def kind(number):
        shown = os.readlink(f"/proc/self/fd/{number}")
        return shown.partition(":")[0] if ":" in shown else shown

    @tool(isolation="call")
    def t(strict: bool) -> list[str]:
        numbers = range(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        found = [f"descriptor {n}: {kind(n)}" for n in numbers if os.path.lexists(f"/proc/self/fd/{n}")]
        if not strict:
            return found  # its other figures are not open to a process that the template forks
        mapping = b""
        for line in open("/proc/self/smaps", "rb"):
            if line.startswith(b"VmFlags") and {b"sh", b"mw"} <= set(line.split()):
                found.append(f"shared mapping {mapping}")
            elif b"-" in line.partition(b" ")[0]:
                mapping = line
        for line in open("/proc/self/mountinfo"):
            before, after = line.split(" - ")
            path, options = before.split()[4:6]
            if "rw" in options.split(","):
                of_project = path == os.getcwd() or path.startswith(os.getcwd() + "/")
                found.append("writable mount of the project" if of_project else f"writable mount {path}")
        for name in ("shm", "msg", "sem"):
            found += [f"{name} {line}" for line in open(f"/proc/sysvipc/{name}").readlines()[1:]]
        with socket.create_server(("127.0.0.1", 0)) as server:  # one that would wait after its end
            client = socket.create_connection(server.getsockname())
            accepted, _ = server.accept()
            client.close()
            accepted.close()
        for name in ("tcp", "tcp6", "udp", "udp6"):
            found += [f"{name} {line}" for line in open(f"/proc/net/{name}").readlines()[1:]]
        return found
"""


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
async def test_calls_share_nothing_that_is_not_known(daemon: RunningDaemon, profile: str) -> None:
    configure(daemon, profile)
    daemon.tool("t", HEAD + SURVEY)
    async with daemon.connect() as session:
        outcomes = [(await session.call("t", {"strict": profile == "strict"})).check() for _ in range(2)]
    assert outcomes[0].facts.worker_id == outcomes[1].facts.worker_id
    of_baseline = {name for name in SHARED if name.startswith("descriptor")}
    for outcome in outcomes:
        assert set(outcome.details) == (set(SHARED) if profile == "strict" else of_baseline)


CHANGES = """
    import pathlib, select, stat, struct

    shared = mmap.mmap(-1, 4096, prot=0) if MAPPED else None
    LOCK = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 12345, 777, 0)
    VARYING = (55, 57, 77)  # SO_MEMINFO, SO_COOKIE, SO_PEERPIDFD

    def option(of, number):
        with socket.socket(fileno=os.dup(of)) as end:
            try:
                return end.getsockopt(socket.SOL_SOCKET, number, 64).hex()
            except OSError:
                return None

    def seen(number):
        status = os.fstat(number)
        found = [status.st_mode, status.st_uid, status.st_gid]
        found += [fcntl.fcntl(number, command) for command in (fcntl.F_GETFL, fcntl.F_GETOWN, 11)]
        if stat.S_ISFIFO(status.st_mode):
            again = os.open(f"/proc/self/fd/{number}", os.O_RDWR | os.O_NONBLOCK)
            locked = fcntl.fcntl(again, 36, LOCK)[:24].hex()  # F_OFD_GETLK
            try:
                fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held = False
            except BlockingIOError:
                held = True
            os.close(again)
            return [*found, fcntl.fcntl(number, fcntl.F_GETPIPE_SZ), fcntl.fcntl(number, 1035, bytes(8)).hex(), locked, held]
        if stat.S_ISSOCK(status.st_mode):
            with socket.socket(fileno=os.dup(number)) as end:
                found.append(repr(end.getsockname()))
            found += [option(number, each) for each in range(1, 128) if each not in VARYING]
        return found

    def change(does):
        place = tempfile.gettempdir()
        if does == "attribute":
            os.setxattr(place, "user.left", b"data")
        elif does == "flag":
            opened = os.open(place, os.O_RDONLY)
            fcntl.ioctl(opened, 0x40086602, struct.pack("q", 0x40))  # FS_IOC_SETFLAGS, FS_NODUMP_FL
        elif does == "time":
            os.utime(place, ns=(1, 1))
        elif does == "times":
            for number in (1, 2, 4, 5, 6):
                os.utime(number, ns=(1, 1))
        elif does == "low":
            socket.socket(fileno=os.dup(4)).setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 100_000)
        elif does == "option":
            socket.socket(fileno=os.dup(5)).setsockopt(socket.SOL_SOCKET, 29, 1)  # SO_TIMESTAMP
        elif does == "filter":
            code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0xFFFFFFFF))
            program = struct.pack("HxxxxxxP", 1, ctypes.addressof(code))
            socket.socket(fileno=os.dup(4)).setsockopt(socket.SOL_SOCKET, 26, program)  # SO_ATTACH_FILTER
        elif does == "name":
            socket.socket(fileno=os.dup(4)).bind("\\0left")
        elif does == "pipe":
            fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 4096)
        elif does == "mode":
            os.fchmod(1, 0)
        elif does == "hint":
            fcntl.fcntl(1, 1036, struct.pack("q", 3))
        elif does == "flags":
            for number in (1, 2, 6):
                fcntl.fcntl(number, fcntl.F_SETFL, fcntl.fcntl(number, fcntl.F_GETFL) ^ os.O_NONBLOCK)
        elif does == "owner":
            for number in (1, 2, 4, 5, 6):
                fcntl.fcntl(number, fcntl.F_SETOWN, os.getpid())
                fcntl.fcntl(number, 10, 33)  # F_SETSIG
        elif does == "lock":
            for number in (0, 1, 2, 4, 5, 6):
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        elif does == "ranges":
            for number in (1, 2, 4, 5, 6):
                fcntl.fcntl(number, 37, LOCK)  # F_OFD_SETLK
        elif does == "shut":
            socket.socket(fileno=os.dup(4)).shutdown(socket.SHUT_RD)
        elif does == "deaf":
            socket.socket(fileno=os.dup(5)).shutdown(socket.SHUT_RD)
        elif does == "segment":
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.shmget(0, 4096, 0o1600) < 0:
                raise OSError(ctypes.get_errno(), "Operation not supported")

    @tool(isolation="call", timeout=20)
    def t(does: str = "") -> dict:
        place = tempfile.gettempdir()
        found = {"attributes": os.listxattr(place), "time": os.stat(place).st_mtime_ns}
        found |= {str(number): seen(number) for number in (0, 1, 2, 4, 5, 6)}
        found["times"] = [os.fstat(number).st_mtime_ns for number in (1, 2, 4, 5)]
        change(does)
        if does == "write":
            libc = ctypes.CDLL(None)
            address = next(int(line.split(b"-")[0], 16) for line in open("/proc/self/maps", "rb") if b"/dev/zero" in line)
            libc.mprotect(ctypes.c_void_p(address), 4096, 3)
            found["left"] = ctypes.string_at(address, 4).decode("latin-1")
            ctypes.memmove(address, b"left", 4)
        return found
"""

SET_AGAIN = ["", "time", "times", "flags", "owner", "lock", "ranges"]
ENDS_CELL = [
    "attribute", "flag", "low", "option", "filter", "name", "pipe", "mode", "hint", "shut", "deaf", "segment", "write",
]  # fmt: skip
"""What costs the cell."""


@pytest.mark.slow
@pytest.mark.sampled("profile")
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("does", [*SET_AGAIN, *ENDS_CELL])
async def test_a_call_leaves_nothing_in_what_the_template_keeps(
    daemon: RunningDaemon, profile: str, does: str
) -> None:
    configure(daemon, profile)
    daemon.tool("t", HEAD + CHANGES.replace("MAPPED", str(does == "write")))
    async with daemon.connect() as first, daemon.connect() as second:
        before = (await first.call("t")).check().details
        changed = await first.call("t", {"does": does})
        then = (await second.call("t", {"does": "write"} if does == "write" else {})).check()
    if changed.kind is Kind.tool_error and ("not supported" in changed.text or "Permission" in changed.text):
        pytest.skip("there is nothing of the kind in such a cell")
    assert changed.ok, changed
    after = then.details
    if does == "write":
        assert after["left"] == "\0\0\0\0"
    else:
        passing = {"time": 0, "times": 0}
        assert {**after, **passing} == {**before, **passing}
        assert 1 not in (after["time"], *after["times"])
    if does in SET_AGAIN:  # costs no cell
        assert then.facts.worker_id == changed.facts.worker_id
    else:
        assert then.facts.worker_id != changed.facts.worker_id


OUTSIDE = """
    PLACES = ["/run", "/home", "/mnt", "/var/tmp", "/proc/1/comm", f"/proc/{os.getppid()}/stat", "/proc/version", 0]

    def same_times(place):  # one of them is the machine's /dev/null, if it can be changed
        found = os.stat(place)
        os.utime(place, ns=(found.st_atime_ns, found.st_mtime_ns))

    def same_mode(place):
        os.chmod(place, os.stat(place).st_mode & 0o777)

    def attribute(place):
        os.setxattr(place, "user.left", b"data")

    @tool(isolation="call")
    def t(context: ToolContext) -> dict:
        acts = {"times": same_times, "mode": same_mode, "attribute": attribute}
        return {f"{act} of {place}": refused(acts[act], place) for act in acts for place in PLACES}
"""


@pytest.mark.slow
async def test_a_strict_call_changes_no_modes_times_and_attributes_outside_of_its_temporary_directories(
    daemon: RunningDaemon,
) -> None:
    configure(daemon, "strict")
    daemon.tool("t", HEAD + OUTSIDE)
    async with daemon.connect() as session:
        said = (await called(session)).details
    assert not [what for what, answer in said.items() if answer == "done"], said
