"""The operator's connection: answers, and one exception for whatever is refused."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from toolcell.client import Refused, Unavailable
from toolcell.client._launch.daemon import Running
from toolcell.client._transport.operator import operate  # pyright: ignore[reportPrivateUsage]  # ours, for the command
from toolcell_proto.v1 import operator_pb2
from toolcell_proto.v1 import toolcell_pb2 as pb

from .scripted import TOKEN, daemon

pytestmark = pytest.mark.anyio


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


async def test_a_daemon_that_is_gone_is_refused_with_the_remedy(tmp_path: Path) -> None:
    async with daemon(tmp_path) as scripted:
        pass
    tmp_path.joinpath("operator.token").write_text(TOKEN)
    async with operate(Running(scripted.socket)) as operator:
        with pytest.raises(Refused, match="toolcell serve") as refused:
            await operator.ask(operator.operator.GetStatus, operator_pb2.GetStatusRequest())
        assert refused.value.reason == "unreachable"


async def test_without_a_token_nobody_is_asked(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with pytest.raises(Unavailable, match="no token at"):
        async with operate(Running(str(tmp_path / "daemon.sock"))):
            pass
