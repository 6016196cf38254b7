"""What one host is offered beside tools: outputs that were cut, and resources and prompts of the user's MCP servers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from mcp import MCPError, types

from toolcell.adapters.mcp import offers, resources
from toolcell.client import Catalog, Outcome, Output, Refused, Session, Unavailable

from .context import Context
from .limits import DESCRIBED_SECONDS_MAX
from .notices import HostNotices

AskServer: TypeAlias = Callable[
    [Context, types.InputResponseRequestParams | None, str, str, Mapping[str, object]],
    Awaitable[Outcome | types.InputRequiredResult],
]
"""`HostSession`'s way to make a request of a server: of the request its parameters, then the tool, the method and its own."""


class HostOffers:
    """The lists, and what is read of them; its public methods with a context are the handlers of an MCP server.

    Args:
        notices: Notifies the host of other lists.
        session: Returns the session for a request. Raises MCPError.
        ask: Makes a request of a server.
    """

    def __init__(
        self, notices: HostNotices, session: Callable[[Context], Awaitable[Session]], ask: AskServer
    ) -> None:
        self._notices, self._session, self._ask = notices, session, ask
        self._outputs = resources.KeptOutputs()
        # What servers offer, and the catalog that it is of; the last that the host was told, None for nothing.
        self._fetching = asyncio.Lock()
        self._offers: tuple[Catalog, offers.ServerOffers] | None = None
        self._told: offers.ServerOffers | None = None

    async def keep(self, output: Output, tool: str) -> dict[str, Any]:
        """Offer an output that was cut; return the link to it."""
        link = self._outputs.add(output, tool)
        await self._notices.resources_changed(subscribed_only=True)
        return link

    def clear(self) -> None:
        """Offer no output of before any more: the host is in another directory now."""
        self._outputs.clear()

    def told_nothing(self) -> None:
        """Notify the host if there are resources or prompts: it was told that there are none."""
        self._told = offers.ServerOffers()

    async def list_resources(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """The outputs that were cut, and the resources of servers. Raises MCPError."""
        offered = await self._listed(context)
        return types.ListResourcesResult(resources=[*self._outputs.listed(), *offered.resources])

    async def list_resource_templates(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        """What can be read beyond the lists. Raises MCPError."""
        offered = await self._listed(context)
        return types.ListResourceTemplatesResult(
            resource_templates=[resources.template(), *offered.templates]
        )

    async def list_prompts(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        """The prompts of servers. Raises MCPError."""
        return types.ListPromptsResult(prompts=(await self._listed(context)).prompts)

    async def read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult | types.InputRequiredResult:
        """A range of an output that was cut, or a resource of a server. Raises MCPError."""
        if params.uri.startswith(resources.URI):
            return await resources.read(await self._session(context), params.uri)
        offered = await self._offered(context)
        tool, own = offered.find(params.uri)
        outcome = await self._ask(context, params, tool, "resources/read", {"uri": own})
        if isinstance(outcome, types.InputRequiredResult):
            return outcome
        return offers.read(outcome, params.uri, own, tool, offered)

    async def get_prompt(
        self, context: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        """A prompt of a server. Raises MCPError."""
        offered = await self._offered(context)
        prompt = offered.prompt(params.name)
        if prompt is None:
            raise offers.no_prompt(params.name)
        asked = {"name": prompt.key, "arguments": params.arguments or {}}
        outcome = await self._ask(context, params, prompt.tool, "prompts/get", asked)
        if isinstance(outcome, types.InputRequiredResult):
            return outcome
        return offers.messages(outcome, prompt.tool, offered)

    async def complete(self, context: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        """The ids of outputs that begin so, or what a server completes an argument to. Raises MCPError."""
        reference = params.ref
        if isinstance(reference, types.ResourceTemplateReference) and reference.uri == resources.TEMPLATE:
            return types.CompleteResult(completion=self._outputs.complete(params))
        offered = await self._offered(context)
        if isinstance(reference, types.PromptReference):
            about, known = {"type": "ref/prompt"}, offered.prompt(reference.name)
        else:
            about, known = {"type": "ref/resource"}, offered.template(reference.uri)
        if known is None:
            return types.CompleteResult(completion=types.Completion(values=[], total=0, has_more=False))
        name = "name" if known.kind == "prompt" else "uri"
        asked = {
            "ref": {**about, name: known.key},
            **params.model_dump(
                by_alias=True, mode="json", exclude_none=True, include={"argument", "context"}
            ),
        }
        outcome = await self._ask(context, None, known.tool, "completion/complete", asked)
        assert not isinstance(outcome, types.InputRequiredResult)
        return types.CompleteResult(completion=offers.completion(outcome))

    async def fetched(self, session: Session) -> offers.ServerOffers:
        """What servers offer in a session, asked for once for each catalog. Raises Unavailable and Refused."""
        async with self._fetching:
            catalog = session.catalog
            if self._offers is None or self._offers[0] is not catalog:
                self._offers = catalog, offers.ServerOffers(await session.offers())
            return self._offers[1]

    async def changed(self, session: Session) -> None:
        """Notify a host that has listed resources or prompts of another list; it costs the others nothing."""
        before = self._told
        if before is None:
            return
        with suppress(Unavailable, Refused):  # the next catalog tells
            now = self._told = await self.fetched(session)
            if (before.resources, before.templates) != (now.resources, now.templates):
                await self._notices.resources_changed()
            if before.prompts != now.prompts:
                await self._notices.prompts_changed()

    async def _offered(self, context: Context) -> offers.ServerOffers:
        """What servers offer. Raises MCPError."""
        try:
            return await self.fetched(await self._session(context))
        except (Unavailable, Refused) as error:
            raise MCPError(types.INTERNAL_ERROR, str(error)) from error

    async def _listed(self, context: Context) -> offers.ServerOffers:
        """What servers offer, for a list: the host is notified of another from now on. Raises MCPError."""
        session = await self._session(context)
        await session.described(DESCRIBED_SECONDS_MAX)
        self._told = await self._offered(context)
        self._notices.follow(context)
        return self._told
