"""The RPCs of a cluster, by name, with the types of their messages; a session on this machine loads none of them."""

from __future__ import annotations

from typing import Final

from toolcell_proto.v1 import placement_pb2 as pb

from .methods import Method


class PlacementMethods:
    """The service that places sessions."""

    Resolve: Final = Method("/toolcell.v1.Placement/Resolve", pb.ResolveRequest, pb.ResolveResponse)
    Renew: Final = Method("/toolcell.v1.Placement/Renew", pb.RenewRequest, pb.RenewResponse)
    Release: Final = Method(
        "/toolcell.v1.Placement/Release", pb.PlacementReleaseRequest, pb.PlacementReleaseResponse
    )
    ListNodes: Final = Method("/toolcell.v1.Placement/ListNodes", pb.ListNodesRequest, pb.ListNodesResponse)
    Oversee: Final = Method("/toolcell.v1.Placement/Oversee", pb.OverseeRequest, pb.OverseeResponse)
    DrainNode: Final = Method("/toolcell.v1.Placement/DrainNode", pb.DrainNodeRequest, pb.DrainNodeResponse)


class NodeMethods:
    """What a node serves to Placement."""

    Report: Final = Method("/toolcell.v1.Node/Report", pb.ReportRequest, pb.ReportResponse)
    Move: Final = Method("/toolcell.v1.Node/Move", pb.MoveRequest, pb.MoveResponse)
