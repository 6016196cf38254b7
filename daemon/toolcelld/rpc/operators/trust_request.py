"""What the tools of a project ask for, shown to a person before it is granted.

A trust request is made from what the catalog knows, so what is shown, what is granted and what is pinned are of
one look. Its digest is the proof of that: other code by the time of the grant is another request.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from toolcell._paths import is_below
from toolcell_proto.v1 import operator_pb2 as pb
from toolcelld.catalog.catalog import Catalog, ToolInfo
from toolcelld.catalog.discovery.project_servers import SERVERS_FILE
from toolcelld.catalog.discovery.servers import said_of
from toolcelld.catalog.discovery.sources import PROJECT_PLUGINS, ToolFile, project_directory
from toolcelld.config.remedies import set_command
from toolcelld.config.resolution.access import Access, in_words
from toolcelld.config.schema import PROJECT
from toolcelld.errors import BadRequest, Refusal, RefusalReason
from toolcelld.flavours import project_places
from toolcelld.policy.decisions.consent import grant_command
from toolcelld.policy.decisions.trust import Trusted, digest_of, most_of
from toolcelld.policy.interpreters import environment_of
from toolcelld.policy.project import Project
from toolcelld.policy.ruleset import Ruleset
from toolcelld.rpc.messages.encoding import encode_problem, timestamp


def is_of(project: str, file: ToolFile) -> bool:
    """Whether a file is a project's own: not the user's, and not that of a project around it."""
    return file.source == PROJECT and project_directory(file) == project


@dataclass(frozen=True, slots=True)
class TrustRequest:
    """A project's tools, as one look found them.

    Args:
        catalog: The catalog of the project's directory.
        files: The project's files in it, also those that could not be described.
        ruleset: The rules that decide what a tool would get.
    """

    catalog: Catalog
    files: tuple[ToolFile, ...]
    ruleset: Ruleset

    @property
    def digest(self) -> str:
        """That of the code, and of what the tools of MCP servers say of themselves."""
        return digest_of(self.files, (tool.promise for tool in self.tools if tool.promise))

    @property
    def changed(self) -> tuple[ToolInfo, ...]:
        """The tools of MCP servers that describe themselves in another way than they were accepted."""
        known = (tool for tool in self.tools if self.ruleset.promises.of(tool) not in (None, tool.promise))
        return tuple(tool for tool in known if self.ruleset.withheld(tool))

    @property
    def tools(self) -> tuple[ToolInfo, ...]:
        """Those of the project, also where a stronger one hides them: tomorrow it may be gone."""
        found = (tool for tools in self.catalog.files.values() for tool in tools)
        return tuple(tool for tool in found if is_of(self.catalog.directory, tool.file))

    def granted(self, digest: str, *, pinned: bool) -> Trusted:
        """The trust in it. Raises `Refusal` where it is not what was shown, or not all of it is known."""
        if self.catalog.pending:
            raise Refusal(
                RefusalReason.BUSY,
                f"{self.catalog.pending} files of {self.catalog.directory} are still being described.",
                retry_seconds=2,
                quota="files described at once",
            )
        if digest and digest != self.digest:
            raise BadRequest(
                f"the tools of {self.catalog.directory} have changed since they were shown; look again.",
                field="digest",
            )
        if pinned and not self.files:
            raise BadRequest(
                f"{self.catalog.directory} has no tools whose code could be pinned.", field="pinned"
            )
        if pinned and (uncovered := next((file.uncovered for file in self.files if file.uncovered), "")):
            raise BadRequest(
                f"{self.catalog.directory} cannot be pinned, as a change there would not be noticed: {uncovered}.\n"
                "  Move that out of the directory of the tools, or trust the project without --digest.",
                field="pinned",
            )
        if reason := _unfit(self.catalog.directory, self.ruleset.host_paths.home):
            raise BadRequest(
                f"{self.catalog.directory} cannot be trusted: {reason}. Move the tools to a directory of their own.",
                field="directory",
            )
        known = self.ruleset.trusts.by_directory.get(self.catalog.directory)
        by_path = any(file.project and file.share is None for file in self.files)
        if known is not None and known.pins and self.ruleset.config.only:
            raise BadRequest(
                f"{self.catalog.directory} is trusted with its code of then, which one file cannot be added to.\n"
                f"  To trust all of it as it is now: toolcell trust --digest {shlex.quote(self.catalog.directory)}",
                field="directory",
            )
        if pinned and by_path:
            raise BadRequest(
                "a file that lies in no directory of tools cannot be pinned: trust it without --digest.",
                field="pinned",
            )
        first = next((file for file in self.files if file.share is None), None)
        trusted = Trusted(
            self.catalog.directory,
            python=first.python or "" if first is not None else "",
            programs=first.programs if first is not None else (),
            pins=frozenset(file.digest for file in self.files) if pinned else frozenset[str](),
        )
        shown = {(trusted.path_of(file), ""): self.ruleset.asked_at_import(file) for file in self.files}
        shown |= {(trusted.path_of(tool.file), tool.name): self.ruleset.asked(tool) for tool in self.tools}
        places = tuple(
            os.path.join(self.catalog.directory, place)
            for place in (*project_places(), PROJECT_PLUGINS, SERVERS_FILE)
        )
        only = self.ruleset.config.only

        def seen(path: str) -> bool:
            place = os.path.join(self.catalog.directory, path)
            return place in only if only else any(is_below(place, each) for each in places)

        return replace(trusted, tools=shown).joined_to(known, seen=seen)

    def encoded(self, differences: Mapping[str, str]) -> pb.GetTrustResponse:
        """As operators see it. Blocks on the file system.

        Args:
            differences: Those of the tools that have changed, by name.
        """
        section = self.ruleset.config.sources.get(PROJECT)
        known = self.ruleset.trusts.by_directory.get(self.catalog.directory)
        return pb.GetTrustResponse(
            directory=self.catalog.directory,
            state=self._state,
            digest=self.digest,
            tools=[
                self._asks(tool, known, differences)
                for tool in sorted(self.tools, key=lambda tool: tool.name)
            ],
            env=section.env if section is not None else (),
            programs=dict.fromkeys(program for file in self.files for program in file.programs),
            python=next((file.python for file in self.files if file.python), ""),
            requires=dict.fromkeys(package for file in self.files for package in file.requires),
            trust=encode_trusted(known) if known is not None else None,
            files=[asks for file in self.files if (asks := self._file_asks(file)).gets],
            code=dict.fromkeys(file.code for file in self.files if file.code and not file.uncovered),
            problems=[
                encode_problem(problem) for problem in self.catalog.problems if problem.reason == "broken"
            ],
        )

    @property
    def _state(self) -> str:
        state = self.ruleset.trusts.state(self.catalog.directory, self.files)
        if state != "untrusted" and (
            any(self.ruleset.consent(tool).why or self.ruleset.withheld(tool) for tool in self.tools)
            or any(map(self._more_of, self.files))
        ):
            return "changed"
        return state

    def _more_of(self, file: ToolFile) -> Access:
        """What the import of a file gets that neither it nor a tool of it was shown with."""
        return self.ruleset.asked_at_import(file).lacking(self.ruleset.shown_of(file))

    def _file_asks(self, file: ToolFile) -> pb.FileAsks:
        consent = self.ruleset.consent_to_file(file)
        of_tools = Access.of(
            ("tools", most_of(self.ruleset.asked(tool)), True)
            for tool in self.tools
            if tool.file.path == file.path
        )
        gets = [
            *([f"it starts {said_of(file)}"] if file.share is not None else ()),
            *environment_of(file, self.ruleset.root_of(file), found=True),
            *in_words(self.ruleset.asked_at_import(file).lacking(of_tools)),
        ]
        why, command = consent.why, consent.command
        if not why and self._more_of(file):
            why = (
                f"{os.path.basename(file.path)} asks for more than when {self.catalog.directory} was trusted"
            )
            command = grant_command(file)
        return pb.FileAsks(path=file.path, why=why, command=command, gets=gets)

    def _asks(self, tool: ToolInfo, known: Trusted | None, differences: Mapping[str, str]) -> pb.ToolAsks:
        consent = self.ruleset.with_held(self.ruleset.consent(tool), tool.file, tool)
        asked = self.ruleset.asked(tool)
        shown = known.shown(tool.file, tool.name) if known is not None and known.covers(tool.file) else None
        state = "new" if shown is None else "more" if asked.lacking(shown) else "granted"
        why, command = consent.why, consent.command
        if tool.name in differences or (not why and self.ruleset.withheld(tool)):
            state = "changed" if tool.name in differences else "new"
            why = why or f"{tool.name} describes itself in another way than when it was accepted"
            command = command or grant_command(tool.file)
        return pb.ToolAsks(
            tool=tool.name,
            path=tool.path,
            network=asked.network,
            secrets=asked.secrets,
            env=asked.env,
            sandbox=asked.profile,
            state=state,
            why=why,
            command=command,
            held=consent.held,
            difference=differences.get(tool.name, ""),
        )


@dataclass(frozen=True, slots=True)
class AcceptRequest:
    """What the tools of one MCP server of the user's own say of themselves, as one look found it.

    Args:
        catalog: The catalog of the directory that the server is looked at in.
        name: That of its source.
        ruleset: The rules that decide what is accepted.
    """

    catalog: Catalog
    name: str
    ruleset: Ruleset

    @property
    def tools(self) -> tuple[ToolInfo, ...]:
        """Its tools, also those that are withheld."""
        found = (tool for tools in self.catalog.files.values() for tool in tools)
        return tuple(tool for tool in found if tool.promise and tool.file.source == self.name != PROJECT)

    @property
    def digest(self) -> str:
        """That of what they say."""
        return digest_of((), (tool.promise for tool in self.tools))

    @property
    def changed(self) -> tuple[ToolInfo, ...]:
        """Those that are withheld."""
        return tuple(tool for tool in self.tools if self.ruleset.withheld(tool))

    def check(self, digest: str) -> None:
        """Raise `BadRequest` where that is not what was shown."""
        if digest and digest != self.digest:
            raise BadRequest(
                f"the tools of {self.name} have changed since they were shown; look again.", field="digest"
            )

    def encoded(self, differences: Mapping[str, str]) -> pb.GetTrustResponse:
        """As operators see it; see `TrustRequest.encoded`."""
        changed = {tool.name for tool in self.changed}
        return pb.GetTrustResponse(
            directory=self.catalog.directory,
            state="changed" if changed else "trusted",
            digest=self.digest,
            tools=[
                pb.ToolAsks(
                    tool=tool.name,
                    path=tool.path,
                    state="changed" if tool.name in changed else "granted",
                    why=self.ruleset.withheld(tool).partition("\n")[0],
                    difference=differences.get(tool.name, "") if tool.name in changed else "",
                )
                for tool in sorted(self.tools, key=lambda tool: tool.name)
            ],
        )


def check_owners(directory: str, project: Project, safe: Collection[str]) -> None:
    """Raise `Refusal` for a project in which other users can write, or whose git configuration cannot be read.

    Args:
        directory: The directory that is to be trusted.
        project: The project that it is, or is in.
        safe: The directories that the configuration accepts although other users can write in them.
    """
    if project.unread:
        raise BadRequest(
            f"{directory} cannot be trusted: it is not known what git runs there, as {project.unread}.\n"
            "  Look at that file, and repair or remove it.",
            field="directory",
        )
    if project.fault:
        accepted = set_command(("daemon", "safe_directories"), [*safe, project.shared])
        raise BadRequest(
            f"{directory} cannot be trusted: another user could change its tools, as {project.fault}.\n"
            f"  Change that, or accept it: {accepted}",
            field="directory",
        )


def encode_trusted(trusted: Trusted) -> pb.TrustInfo:
    """A trust as operators see it."""
    together = trusted.together()
    return pb.TrustInfo(
        directory=trusted.directory,
        pinned=bool(trusted.pins),
        network=together.network,
        secrets=together.secrets,
        granted=timestamp(trusted.granted_at),
    )


def _unfit(directory: str, home: str) -> str:
    """Return why a directory cannot be trusted as a project; empty if it can. Its tools could write everything below it.

    Who else could put tools into it is looked at by `find_project`.
    """
    if home == directory or home.startswith(directory.rstrip("/") + "/"):
        return "it contains your home directory"
    return ""
