"""The worker's loop: loads one file, then runs one call at a time and reports its result.

The tool's code runs in the main thread, directly or on an event loop, because Python handles signals only
there. The keeper sends a signal to abort a call, after the daemon wrote the call's number to the abort channel.
The handler raises `Aborted` in a synchronous tool, which also interrupts a sleep, a wait for a child or an endless
loop, and cancels the task of an asynchronous tool. It raises only while the tool's own code runs, and only once.

Between calls the main thread itself reads the protocol, so a warm call needs no switch between threads.
A reader thread exists only while a question is open.
"""

from __future__ import annotations

import asyncio
import atexit
import builtins
import contextlib
import contextvars
import faulthandler
import inspect
import json
import logging
import os
import resource
import sys
import time
import traceback
from collections.abc import Generator, Mapping
from typing import Any, Final, Literal, NoReturn, TypeVar

from toolcell import Aborted, Denied, ToolContext, ToolError
from toolcell._authoring.discover import Export, Exports, Served
from toolcell._authoring.session_events import ON_SESSION
from toolcell._context.logs import LogHandler
from toolcell._results.errors import MISFIT, InvalidArguments
from toolcell._results.exception_text import describe_exception
from toolcell._results.normalise import failure
from toolcelld import titles
from toolcelld.protocol.frames import Decoder, FrameError, encode
from toolcelld.protocol.messages import (
    CAUSE_CHARACTERS_MAX,
    LINE_CHARACTERS_MAX,
    MODULE_CHARACTERS_MAX,
    PROTOCOL_VERSION,
    THREADS_MAX,
    AnswerMessage,
    BecomeMessage,
    BrokenMessage,
    CallContext,
    CallMessage,
    ChunkMessage,
    FailedMessage,
    GoneMessage,
    GuardedMessage,
    HelloMessage,
    ImportedMessage,
    Kind,
    LoadedMessage,
    LoadMessage,
    ReplyMessage,
    RetireMessage,
    to_worker,
)
from toolcelld.sandbox import setup
from toolcelld.sandbox.setup import ABORT, PROTOCOL, REPORTS
from toolcelld.worker import packages
from toolcelld.worker.abort import Abortable
from toolcelld.worker.calling.call_channel import CallChannel
from toolcelld.worker.calling.forked import end_forked
from toolcelld.worker.calling.process_state import ProcessState, watch_handlers
from toolcelld.worker.calling.report import Usage, WorkerReport
from toolcelld.worker.calling.tool_loop import ToolLoop
from toolcelld.worker.channel import DaemonChannel
from toolcelld.worker.loading.finders import ToolSource
from toolcelld.worker.loading.imports import ImportedFiles
from toolcelld.worker.loading.loader import Broken, description_of, helpers_of, load
from toolcelld.worker.loading.log_files import without_log_files
from toolcelld.worker.loading.traceback_text import traceback_text
from toolcelld.worker.template.leftovers import Leftovers
from toolcelld.worker.template.process import FINISHED, Template
from toolcelld.worker.template.traces import ImportTraces
from toolcelld.worker.zygote.warm_up import sample_tool

T = TypeVar("T")

NOT_DESCRIBED: Final = b'{"tools":[],"problems":[]}'
STDERR: Final = 2
"""By number: the stream of a tool may be anything. The daemon reads there where a crash was (`cell.crash_stack`)."""
LOADING: Final = 0
"""The sequence number of loading the file; calls begin at 1."""
PLAIN: Final = frozenset({int, float, bool, str, dict, list, type(None)})
"""The classes of most values; to ask whether one is awaitable takes longer."""
NOT_AWAITED: Final = (
    "{0}(…) was not awaited, so it did nothing, and the tool went on without it. Write await {0}(…), or context.wait({0}(…)) in a "
    "tool that is no async def."
)


def main(plan: setup.CellPlan, *, resumed: bool = False) -> NoReturn:
    """Run the worker until the daemon retires it; exits the process.

    Args:
        plan: How the cell was built so far.
        resumed: Whether the cell is complete, and has executed this interpreter.
    """
    status = 70  # EX_SOFTWARE, unless the loop returns
    faulthandler.enable(STDERR, all_threads=False)
    for name in ("exit", "quit"):  # those of `site` close standard input, too, which would cost the worker
        setattr(builtins, name, sys.exit)
    try:
        status = _Worker(plan, resumed=resumed).run()
    except FrameError as error:
        print(f"toolcell: the daemon broke the protocol: {error}", file=sys.stderr)
    except setup.SetupFailed as failed:
        print(f"toolcell: {failed}", file=sys.stderr)  # the daemon has a FailedMessage
    finally:
        if sys.exc_info()[1] is not None:  # a bug of ours, which `os._exit` would hide
            traceback.print_exc()
        with contextlib.suppress(Exception):
            atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]  # `os._exit` leaves them out
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(status)


@contextlib.contextmanager
def _working_in(directory: str, calls_directory: str) -> Generator[None]:
    """Have a file loaded in a directory; calls begin in their own unless the file has changed to another one itself."""
    with contextlib.suppress(OSError):  # it is removed
        os.chdir(directory)
    yield
    with contextlib.suppress(OSError):
        if os.getcwd() == directory:
            os.chdir(calls_directory)


def _flush() -> None:
    """Flush what a tool has printed."""
    streams: list[Any] = [sys.__stdout__, sys.__stderr__]
    if sys.stdout is not sys.__stdout__ or sys.stderr is not sys.__stderr__:  # the tool has replaced one
        streams[:0] = (sys.stdout, sys.stderr)
    for stream in streams:
        try:  # noqa: SIM105  # four context managers would take a twentieth of a short call
            stream.flush()
        except Exception:  # noqa: BLE001  # it may be closed, or anything else
            pass


def _missing_module(error: BaseException) -> str:
    """Return the module that an exception is about; empty if an import is not its cause."""
    from toolcelld.worker.loading.import_errors import explained, import_behind

    failed = import_behind(error)
    return "" if failed is None else explained(failed, "")[1]


class _Worker:
    def __init__(self, plan: setup.CellPlan, *, resumed: bool) -> None:
        self.daemon_channel = DaemonChannel(PROTOCOL, REPORTS)
        self.abortable = Abortable(ABORT)
        self._plan = plan
        self._resumed = resumed
        self._directory = "/"
        self._source_directory = ""
        self._title = ""
        self._tools: dict[str, Export] = {}
        self._tool_loop = ToolLoop(self.abortable)
        self._cpu_seconds = 0.0
        self._current: CallChannel | None = None
        self._imported: ImportedFiles | None = None
        self._began_ns = 0
        self._modules = 0  # how many were imported at the last report
        self._forked = False  # whether this is the process of one call
        self._state: ProcessState | None = None  # that every call begins with
        self._served: Served | None = None  # what takes the calls of tools that are not functions
        watch_handlers()

    def run(self) -> int:
        """Run until the worker is to exit, and return its exit status."""
        if not self._resumed:
            self._rehearse(sample_tool())
        self._say_hello()
        while (frame := self.daemon_channel.receive()) is not None:
            message = to_worker(frame.header)
            match message:
                case CallMessage():
                    reusable = self._call(message, frame.payload)
                    if self._forked:
                        return FINISHED
                    if not reusable:
                        return 0
                case BecomeMessage():
                    self._become(frame.payload)
                case LoadMessage():
                    self._load(message, frame.payload)
                    if self._served is not None:
                        return self._serve(self._served)
                case RetireMessage():
                    return 0
                case AnswerMessage() | ReplyMessage() | ChunkMessage():
                    pass  # about a question of a call that has ended
        return 0

    def _say_hello(self) -> None:
        python = sys.version.split()[0]
        self.daemon_channel.send(HelloMessage(protocol=PROTOCOL_VERSION, pid=os.getpid(), python=python))

    # Loading

    def _become(self, payload: bytes) -> None:
        """Apply the cell's settings; a failure ends the worker before any code of the user has run."""
        self._plan.setup = setup.CellSetup.from_json(json.loads(payload))
        if self._resumed:
            self._directory = os.getcwd()
            return
        try:
            setup.walk(setup.WANTED, self._plan)
            if self._plan.asking is not None:
                self.daemon_channel.send(GuardedMessage())
            self._take_packages()
        except setup.SetupFailed as failure:
            self.daemon_channel.send(FailedMessage(message=str(failure)[:LINE_CHARACTERS_MAX]))
            raise
        self._directory = os.getcwd()

    def _take_packages(self) -> None:
        """Take the packages of the tool's environment; another interpreter is executed, and this does not return."""
        assert self._plan.setup is not None
        if (python := self._plan.setup.python) is None:
            return
        if not python.program:
            packages.adopt(python)
            return
        try:
            if python.engine:
                from toolcelld.worker import engine  # most cells have none

                engine.execute(python, self._plan)
            packages.execute(python, self._plan, self._plan.roots)
        except OSError as error:
            raise setup.SetupFailed(f"execute {python.program}: {error.strerror}") from error

    def _load(self, message: LoadMessage, content: bytes) -> None:
        self._title = os.path.basename(message.path)
        self._source_directory = message.directory
        titles.set_title("worker", self._title)
        source = ToolSource(
            path=message.path,
            stem=message.stem,
            directory=message.directory,
            package=message.package,
            content=content,
        )
        cell = self._plan.setup
        assert cell is not None
        prefix = cell.python.prefix if cell.python is not None else ""
        self._imported = ImportedFiles(
            cell.project, message.directory, prefix, after=self._plan.imported_last
        )
        self._began_ns = time.time_ns()
        leftovers = Leftovers(cell)
        traces = (
            ImportTraces(leftovers) if message.fork and self._plan.can_scope else contextlib.nullcontext()
        )
        unwritten = message.describe and cell.policy.enclosure != "none"
        logs = without_log_files() if unwritten else contextlib.nullcontext()
        self.abortable.begin(LOADING, lambda _: None)
        try:
            with self.abortable, traces, logs, _working_in(cell.imported_in, self._directory):
                exported = load(source, describe=message.describe, project=(cell.project, prefix))
                if message.fork:  # or each process of a call would do it
                    for tool in exported.tools:
                        tool.prepare()
                answer = description_of(exported, helpers_of(source)) if message.describe else NOT_DESCRIBED
        except Broken as broken:
            if broken.traceback_text:
                print(broken.traceback_text, file=sys.stderr)
            said = broken.message
            if (error := broken.__cause__) is not None:
                place = cell.imported_in or self._directory
                said = self._explained(said, error, source.stem, place, describing=message.describe)
            self.daemon_channel.send(
                BrokenMessage(
                    stage=broken.stage,
                    message=said[:CAUSE_CHARACTERS_MAX],
                    line=broken.line,
                    module=broken.module[:MODULE_CHARACTERS_MAX],
                )
            )
            return
        except Aborted as stopped:
            cause = f"still describing after {stopped}"[:CAUSE_CHARACTERS_MAX]
            self.daemon_channel.send(BrokenMessage(stage="describe", message=cause))
            return
        finally:
            self.abortable.end()
            sys.stdout.flush()
            sys.stderr.flush()
        self._keep(exported, message)
        self._report_imports()
        # One handler for all calls; records between calls go to stderr, as without the handler.
        logging.getLogger().addHandler(LogHandler(self))
        layers = tuple(self._plan.layers)
        forks = isinstance(traces, ImportTraces) and not traces.unfit()
        if not forks:  # the process of one call ends with it
            self._state = ProcessState()
        self._served = exported.served
        calls = exported.served.calls if exported.served is not None else None
        self.daemon_channel.send(LoadedMessage(layers=layers, forks=forks or None, calls=calls), answer)
        if forks:
            self._become_template(leftovers)

    def _keep(self, exported: Exports, message: LoadMessage) -> None:
        """Keep what calls may run, by name."""
        self._tools = {tool.name: tool for tool in exported.tools}
        if message.tests:
            from toolcell._testing.run import tests_of  # a daemon for tests alone has it

            self._tools = dict.fromkeys(self._tools, tests_of(message.directory))
        if exported.on_session is not None:
            self._tools[exported.on_session.name] = exported.on_session

    def _become_template(self, leftovers: Leftovers) -> None:
        """Fork a process for each call; this returns in each of them, ready for its call."""
        sample = sample_tool()
        titles.set_title("template", self._title)
        Template(self._plan, leftovers).fork(self._say_gone)
        self._forked = True
        titles.set_title("worker", self._title)
        self.abortable.listen()
        self._rehearse(sample)
        self._say_hello()

    def _say_gone(self, call: int) -> None:
        self.daemon_channel.send(GoneMessage(seq=call))

    def _rehearse(self, sample: Export) -> None:
        """Run a call of our own, so that the pages that every call writes to are this process's own when its call comes."""
        context: CallContext = {
            "session_id": "", "message_id": "", "call_id": "", "agent": "", "agent_name": "", "directory": "", "worktree": "",
        }  # fmt: skip
        call = encode(CallMessage(seq=LOADING, tool="", context=context), b'{"text":"a"}')
        tools, self._tools = self._tools, {"": sample}
        for frame in Decoder().feed(call):
            message = to_worker(frame.header)
            assert isinstance(message, CallMessage)
            list(self._run_call(message, frame.payload).frames(LOADING, Usage(0.0, 0, 0)))
        self._tools = tools
        self._cpu_seconds = time.process_time()

    def _report_imports(self) -> None:
        """Tell the daemon which files of the project were imported since the last report."""
        self._modules = len(sys.modules)
        if self._imported is not None:
            for files in self._imported.new_since(self._began_ns):
                self.daemon_channel.send(ImportedMessage(files=files))

    # Calling

    def _serve(self, served: Served) -> int:
        from toolcelld.worker.serving import Serving  # most workers have no server

        return Serving(served, self._tools, self.daemon_channel, self.abortable, self._title).run()

    def _call(self, message: CallMessage, payload: bytes) -> bool:
        """Run a call; return whether this process can have another one."""
        # `_run_call` returns before the flush, so that objects of the call are freed and their destructors' output is flushed.
        titles.change_title("worker", f"{message.tool} {message.context['call_id']}")
        report = self._run_call(message, payload)
        lost = self._state.lost() if self._state is not None else ()
        _flush()
        own = resource.getrusage(resource.RUSAGE_SELF)
        of_children = resource.getrusage(resource.RUSAGE_CHILDREN)
        # The processor time since the previous call; the worker uses none between calls.
        previous_seconds, self._cpu_seconds = (
            self._cpu_seconds,
            own.ru_utime + own.ru_stime + of_children.ru_utime + of_children.ru_stime,
        )
        usage = Usage(
            cpu_seconds=max(0.0, round(self._cpu_seconds - previous_seconds, 6)),
            memory_peak_bytes=own.ru_maxrss * 1024,
            threads=min(self._tool_loop.count_leftovers(), THREADS_MAX),
            changed=lost,
        )
        if len(sys.modules) != self._modules:
            self._report_imports()
        self.daemon_channel.send_frames(report.frames(message.seq, usage))
        titles.change_title("worker", self._title)
        return self._state is not None and self._state.put_back()

    def _run_call(self, message: CallMessage, payload: bytes) -> WorkerReport:
        tool = self._tools.get(message.tool)
        channel = self._current = CallChannel(
            self.daemon_channel, self.abortable, self._tool_loop.complete, message.seq
        )
        context = ToolContext(channel, **message.context)
        report = self._report(tool, message.seq, payload, context, channel)
        self._current = None
        channel.finish()
        return report

    def _report(
        self, tool: Export | None, sequence: int, payload: bytes, context: ToolContext, channel: CallChannel
    ) -> WorkerReport:
        if tool is None:
            return WorkerReport.from_text("internal", "the file has no such tool any more", ran=False)
        try:
            arguments = tool.arguments(payload)
        except InvalidArguments as error:
            return WorkerReport.from_text("invalid_arguments", str(error), ran=False)
        if not self.abortable.begin(sequence, context.abort._set):  # pyright: ignore[reportPrivateUsage]  # the setter is for the worker only
            return WorkerReport.from_text("aborted", "", ran=False)
        try:
            with self.abortable:
                caller = os.getpid()
                variables = contextvars.copy_context()  # a synchronous tool would set those of the process
                try:
                    value = variables.run(tool.invoke, arguments, context)
                    if tool.is_async or (type(value) not in PLAIN and inspect.isawaitable(value)):
                        value = self._tool_loop.complete(value, variables)
                finally:
                    if os.getpid() != caller:
                        end_forked()
                result = tool.normalise(value)
                if result.misfit:
                    text = f"{tool.name} {MISFIT}{result.misfit}"
                    channel.tell("log", {"level": "warning", "text": text[:LINE_CHARACTERS_MAX]})
            if (forgotten := context._forgotten()) and not self.abortable.delivered:  # pyright: ignore[reportPrivateUsage]  # for the worker
                return WorkerReport.from_text("tool_error", NOT_AWAITED.format(forgotten))
            returned: Kind = "tool_error" if result.is_error else "ok"
            return WorkerReport("aborted" if self.abortable.delivered else returned, result)
        except (Aborted, asyncio.CancelledError) as stopped:
            if self.abortable.delivered:
                return WorkerReport.from_text("aborted", "")
            return self._report_of_exception(stopped, channel, tool.name)
        except ToolError as error:
            raised: Kind = "denied" if isinstance(error, Denied) else "tool_error"
            missing = _missing_module(error) if tool.name == ON_SESSION else ""
            return WorkerReport(
                "aborted" if self.abortable.delivered else raised, failure(error), missing=missing
            )
        except BaseException as error:  # noqa: BLE001  # a tool's own code is called here
            if self.abortable.delivered:
                return WorkerReport.from_text("aborted", "")
            return self._report_of_exception(error, channel, tool.name)
        finally:
            self.abortable.end()

    def tell(
        self,
        kind: Literal["update", "progress", "metadata", "log"],
        header: Mapping[str, Any],
        payload: bytes = b"",
    ) -> None:
        """Send a message of the root logger's handler on the channel of the running call."""
        if self._current is not None:
            self._current.tell(kind, header, payload)

    def _explained(
        self, text: str, error: BaseException, tool: str, directory: str, *, describing: bool = False
    ) -> str:
        """Return the text of an exception of the file with what it does not say about the cell and the file."""
        from toolcell._authoring.checker_imports import missing_import
        from toolcelld.worker.calling.denial import denial
        from toolcelld.worker.loading.import_errors import missing_library

        assert self._plan.setup is not None
        said = denial(error, tool, self._plan.setup.policy, directory, describing=describing)
        said = said or missing_import(error) or missing_library(error)
        return f"{text}\n{said}" if said else text

    def _report_of_exception(self, error: BaseException, channel: CallChannel, tool: str) -> WorkerReport:
        channel.tell("log", {"level": "error", "text": traceback_text(error)})
        # Most calls end without an exception.
        from toolcelld.worker.calling.limit import limit_behind
        from toolcelld.worker.calling.unreached import unreached
        from toolcelld.worker.loading.import_errors import import_behind, of_call

        assert self._plan.setup is not None
        text, missing = describe_exception(error, (self._directory,)), ""
        if (failed := import_behind(error)) is not None:
            text, missing = of_call(text, failed, self._source_directory)
        text = self._explained(text, error, tool, self._directory)
        limit = limit_behind(error, self._plan.setup)
        return WorkerReport.from_text(
            "tool_error", text, limit=limit, unreached=unreached(error), missing=missing
        )
