"""The operator's connection: answers, and one exception for whatever is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import ServiceDescriptor

from toolcell.client import Refused, Unavailable
from toolcell.client._grpc import channel, rpc
from toolcell.client._grpc.methods import Method, OperatorMethods, ToolCellMethods
from toolcell.client._launch.daemon import Running
from toolcell.client._transport.operator import Operator, operate  # pyright: ignore[reportPrivateUsage]  # ours, for the command
from toolcell_proto.v1 import operator_pb2
from toolcell_proto.v1 import toolcell_pb2 as pb

from .scripted import TOKEN, daemon

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def stand_in(
    directory: Path, serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
) -> AsyncGenerator[Operator]:
    """What an operator has of a daemon that only does this with each connection."""
    directory.joinpath("operator.token").write_text(TOKEN)
    directory.chmod(0o700)
    socket = directory / "daemon.sock"
    async with await asyncio.start_unix_server(serve, socket), operate(Running(str(socket))) as operator:
        yield operator
    socket.unlink(missing_ok=True)


async def test_answers_come_and_refusals_are_one_exception(tmp_path: Path) -> None:
    async with daemon(tmp_path) as scripted:
        tmp_path.joinpath("operator.token").write_text(TOKEN)
        async with operate(Running(scripted.socket)) as operator:
            found = pb.ReadOutputRequest(
                output_id="o-1", session_id="s-1", resume_token="secret", length_bytes=5
            )
            parts = [part.data async for part in operator.watch(operator.tools.ReadOutput, found)]
            assert parts == [b"012", b"34"]
            with pytest.raises(Refused, match="no output o-9") as refused:
                async for _ in operator.watch(
                    operator.tools.ReadOutput, pb.ReadOutputRequest(output_id="o-9")
                ):
                    pass
            assert (refused.value.status, refused.value.code) == (grpc.StatusCode.NOT_FOUND, "unknown_output")
            with pytest.raises(Refused) as refused:
                await operator.ask(operator.operator.GetStatus, operator_pb2.GetStatusRequest())
            assert refused.value.status is grpc.StatusCode.UNIMPLEMENTED


async def test_a_daemon_that_is_gone_is_unavailable_with_the_remedy(tmp_path: Path) -> None:
    async with daemon(tmp_path) as scripted:
        pass
    tmp_path.joinpath("operator.token").write_text(TOKEN)
    with pytest.raises(Unavailable, match="toolcell serve"):
        async with operate(Running(scripted.socket)):
            pass


async def test_a_daemon_that_ends_while_it_is_asked_is_refused_with_the_remedy(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        asked.set()
        writer.close()

    async with stand_in(tmp_path, hang_up) as operator:
        for _ in range(2):  # the second finds the connection lost
            with pytest.raises(Refused, match="toolcell serve") as refused:
                await operator.ask(operator.operator.GetStatus, operator_pb2.GetStatusRequest())
            assert refused.value.reason == "unreachable"
            await asked.wait()


async def test_a_daemon_that_hangs_is_refused_when_the_time_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "OVERTIME_SECONDS", 0)
    left = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await left.wait()
        writer.close()

    async with stand_in(tmp_path, hang) as operator:
        with pytest.raises(Refused, match="has not answered it in time"):
            await operator.ask(
                operator.operator.GetStatus, operator_pb2.GetStatusRequest(), timeout_seconds=0.05
            )
        left.set()


async def test_without_a_token_nobody_is_asked(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with pytest.raises(Unavailable, match="no token at"):
        async with operate(Running(str(tmp_path / "daemon.sock"))):
            pass


async def test_a_daemon_that_asks_on_and_on_and_reads_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc, "UNSENT_BYTES_MAX", 1_000_000)
    settings, ping = b"\0\0\0\4\0\0\0\0\0", b"\0\0\x08\6\0\0\0\0\0" + bytes(8)

    asked: list[int] = []

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(settings)
        with suppress(ConnectionError):
            for number in range(1000):
                writer.write(ping * 1000)
                await writer.drain()
                asked.append(number)
        writer.close()

    async with stand_in(tmp_path, ask) as operator:
        with pytest.raises(Refused, match="does not answer"):
            await operator.ask(operator.operator.GetStatus, operator_pb2.GetStatusRequest())
    assert len(asked) < 500


@pytest.mark.parametrize(
    ("service", "methods"),
    [
        (pb.DESCRIPTOR.services_by_name["ToolCell"], ToolCellMethods),
        (operator_pb2.DESCRIPTOR.services_by_name["Operator"], OperatorMethods),
    ],
)
def test_the_methods_are_those_of_the_contract(
    service: ServiceDescriptor, methods: type[ToolCellMethods | OperatorMethods]
) -> None:
    ours: dict[str, Method[Any, Any]] = {
        name: method for name, method in vars(methods).items() if isinstance(method, Method)
    }
    theirs = {
        method.name: (f"/{service.full_name}/{method.name}", method.input_type, method.output_type)
        for method in service.methods
    }
    assert {
        name: (method.path, method.request.DESCRIPTOR, method.response.DESCRIPTOR)
        for name, method in ours.items()
    } == theirs


async def test_responses_that_nobody_takes_wait_in_the_daemon(tmp_path: Path) -> None:
    async with daemon(tmp_path) as scripted:
        scripted.outputs["o-2"] = bytes(30_000_000)  # in parts of three bytes
        tmp_path.joinpath("operator.token").write_text(TOKEN)
        async with operate(Running(scripted.socket)) as operator:
            request = pb.ReadOutputRequest(
                output_id="o-2", session_id="s-1", resume_token="secret", length_bytes=30_000_000
            )
            parts = operator.watch(operator.tools.ReadOutput, request)
            assert (await anext(parts)).data == bytes(3)
            sent = -1
            while sent != scripted.parts_sent:
                sent = scripted.parts_sent
                await asyncio.sleep(0.2)
            assert sent < 1_000_000
            for _ in range(1000):
                assert (await anext(parts)).data == bytes(3)
            assert isinstance(parts, AsyncGenerator)
            await parts.aclose()
