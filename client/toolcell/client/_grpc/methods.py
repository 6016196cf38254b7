"""The RPCs of the contract, by name, with the types of their messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from google.protobuf.message import Message

from toolcell_proto.v1 import operator_pb2 as op
from toolcell_proto.v1 import toolcell_pb2 as pb

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)


@dataclass(frozen=True, slots=True)
class Method(Generic[RequestT, ResponseT]):
    """An RPC: its path, and the types of its messages."""

    path: str
    request: type[RequestT]
    response: type[ResponseT]


def _tools(name: str, request: type[RequestT], response: type[ResponseT]) -> Method[RequestT, ResponseT]:
    return Method(f"/toolcell.v1.ToolCell/{name}", request, response)


def _operator(name: str, request: type[RequestT], response: type[ResponseT]) -> Method[RequestT, ResponseT]:
    return Method(f"/toolcell.v1.Operator/{name}", request, response)


class ToolCellMethods:
    """The service for agents."""

    Attach: Final = _tools("Attach", pb.AttachRequest, pb.AttachResponse)
    CallTool: Final = _tools("CallTool", pb.CallToolRequest, pb.CallToolResponse)
    ListTools: Final = _tools("ListTools", pb.ListToolsRequest, pb.ListToolsResponse)
    GetTool: Final = _tools("GetTool", pb.GetToolRequest, pb.GetToolResponse)
    AbortCall: Final = _tools("AbortCall", pb.AbortCallRequest, pb.AbortCallResponse)
    ReadOutput: Final = _tools("ReadOutput", pb.ReadOutputRequest, pb.ReadOutputResponse)
    ListOffers: Final = _tools("ListOffers", pb.ListOffersRequest, pb.ListOffersResponse)


class JoiningMethods:
    """The service for clients of other machines that have a code."""

    Join: Final = Method("/toolcell.v1.Joining/Join", pb.JoinRequest, pb.JoinResponse)


class OperatorMethods:
    """The service for operators."""

    GetStatus: Final = _operator("GetStatus", op.GetStatusRequest, op.GetStatusResponse)
    ListSessions: Final = _operator("ListSessions", op.ListSessionsRequest, op.ListSessionsResponse)
    ListWorkers: Final = _operator("ListWorkers", op.ListWorkersRequest, op.ListWorkersResponse)
    GetActivity: Final = _operator("GetActivity", op.GetActivityRequest, op.GetActivityResponse)
    ListCalls: Final = _operator("ListCalls", op.ListCallsRequest, op.ListCallsResponse)
    FollowCalls: Final = _operator("FollowCalls", op.FollowCallsRequest, op.FollowCallsResponse)
    ListEvents: Final = _operator("ListEvents", op.ListEventsRequest, op.ListEventsResponse)
    GetCall: Final = _operator("GetCall", op.GetCallRequest, op.GetCallResponse)
    WatchEvents: Final = _operator("WatchEvents", op.WatchEventsRequest, op.WatchEventsResponse)
    TailLogs: Final = _operator("TailLogs", op.TailLogsRequest, op.TailLogsResponse)
    Reload: Final = _operator("Reload", op.ReloadRequest, op.ReloadResponse)
    AbortCalls: Final = _operator("AbortCalls", op.AbortCallsRequest, op.AbortCallsResponse)
    RestartWorkers: Final = _operator("RestartWorkers", op.RestartWorkersRequest, op.RestartWorkersResponse)
    DisableTool: Final = _operator("DisableTool", op.DisableToolRequest, op.DisableToolResponse)
    EnableTool: Final = _operator("EnableTool", op.EnableToolRequest, op.EnableToolResponse)
    QuarantineTool: Final = _operator("QuarantineTool", op.QuarantineToolRequest, op.QuarantineToolResponse)
    Drain: Final = _operator("Drain", op.DrainRequest, op.DrainResponse)
    SetLogLevel: Final = _operator("SetLogLevel", op.SetLogLevelRequest, op.SetLogLevelResponse)
    Release: Final = _operator("Release", op.ReleaseRequest, op.ReleaseResponse)
    GetTrust: Final = _operator("GetTrust", op.GetTrustRequest, op.GetTrustResponse)
    Trust: Final = _operator("Trust", op.TrustRequest, op.TrustResponse)
    Distrust: Final = _operator("Distrust", op.DistrustRequest, op.DistrustResponse)
    ListTrust: Final = _operator("ListTrust", op.ListTrustRequest, op.ListTrustResponse)
    Explain: Final = _operator("Explain", op.ExplainRequest, op.ExplainResponse)
    Prepare: Final = _operator("Prepare", op.PrepareRequest, op.PrepareResponse)
    TryServer: Final = _operator("TryServer", op.TryServerRequest, op.TryServerResponse)
    Doctor: Final = _operator("Doctor", op.DoctorRequest, op.DoctorResponse)
