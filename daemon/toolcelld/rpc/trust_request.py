"""What the tools of a project ask for, shown to a person before it is granted.

A trust request is made from what the catalog knows, so what is shown, what is granted and what is pinned are of
one look. Its digest is the proof of that: other code by the time of the grant is another request.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from toolcell_proto.v1 import operator_pb2 as pb
from toolcelld.catalog.catalog import Catalog, ToolInfo
from toolcelld.catalog.sources import ToolFile
from toolcelld.config.grants import NOTHING, Grant
from toolcelld.config.settings import declare
from toolcelld.errors import Refusal, RefusalReason
from toolcelld.policy.ruleset import Ruleset
from toolcelld.policy.trust import PROJECT, Trusted, digest_of
from toolcelld.rpc.encoding import encode_problem, timestamp

__all__ = ["TrustRequest", "encode_trusted"]


@dataclass(frozen=True, slots=True)
class TrustRequest:
    """A project's tools, as one look found them."""

    catalog: Catalog

    @property
    def tools(self) -> tuple[ToolInfo, ...]:
        """Those of the project, also where a stronger one hides them: tomorrow it may be gone."""
        found = (tool for tools in self.catalog.files.values() for tool in tools)
        return tuple(tool for tool in found if tool.file.source == PROJECT)

    @property
    def files(self) -> tuple[ToolFile, ...]:
        """The code that they come from."""
        return tuple({tool.file.path: tool.file for tool in self.tools}.values())

    @property
    def grant(self) -> Grant:
        """All that they ask for together."""
        asked = NOTHING
        for tool in self.tools:
            asked = asked.beside(_needs(tool))
        return asked

    def granted(self, digest: str, *, pinned: bool) -> Trusted:
        """The trust in it. Raises `Refusal` where it is not what was shown, or not all of it is known."""
        if self.catalog.pending:
            raise Refusal(
                RefusalReason.BUSY,
                f"{self.catalog.pending} files of {self.catalog.directory} are still being described.",
                retry_seconds=2,
                quota="files described at once",
            )
        if digest and digest != digest_of(self.files):
            raise Refusal(
                RefusalReason.BAD_REQUEST,
                f"the tools of {self.catalog.directory} have changed since they were shown; look again.",
                field="digest",
            )
        if pinned and not self.files:
            raise Refusal(
                RefusalReason.BAD_REQUEST,
                f"{self.catalog.directory} has no tools whose code could be pinned.",
                field="pinned",
            )
        if pinned and (uncovered := next((file.uncovered for file in self.files if file.uncovered), "")):
            raise Refusal(
                RefusalReason.BAD_REQUEST,
                f"{self.catalog.directory} cannot be pinned, as a change there would not be noticed: {uncovered}.\n"
                "  Move that out of the directory of the tools, or trust the project without --digest.",
                field="pinned",
            )
        pins = frozenset(file.digest for file in self.files) if pinned else frozenset[str]()
        return Trusted(self.catalog.directory, self.grant, pins)

    def encoded(self, ruleset: Ruleset) -> pb.GetTrustResponse:
        """As operators see it."""
        section = ruleset.config.sources.get(PROJECT)
        known = ruleset.trusts.by_directory.get(self.catalog.directory)
        return pb.GetTrustResponse(
            directory=self.catalog.directory,
            state=ruleset.trusts.state(self.catalog.directory, self.files),
            digest=digest_of(self.files),
            tools=[
                pb.ToolAsks(
                    tool=tool.name,
                    path=tool.path,
                    network=_hosts(_needs(tool)),
                    secrets=_needs(tool).secrets,
                )
                for tool in sorted(self.tools, key=lambda tool: tool.name)
            ],
            env=section.env if section is not None else (),
            programs=section.programs if section is not None else (),
            python=(section.python or "") if section is not None else "",
            trust=encode_trusted(known) if known is not None else None,
            problems=[
                encode_problem(problem) for problem in self.catalog.problems if problem.reason == "broken"
            ],
        )


def encode_trusted(trusted: Trusted) -> pb.TrustInfo:
    """A trust as operators see it."""
    return pb.TrustInfo(
        directory=trusted.directory,
        pinned=bool(trusted.pins),
        network=_hosts(trusted.grant),
        secrets=trusted.grant.secrets,
        granted=timestamp(trusted.granted_at),
    )


def _needs(tool: ToolInfo) -> Grant:
    declared = declare(tool.declared)
    return Grant(declared.network, declared.secrets)


def _hosts(grant: Grant) -> Iterable[str]:
    if grant.network is True:
        return ("*",)
    return grant.network or ()
