"""One run of an agent of another framework, which starts `toolcell mcp` by itself: an interpreter of its own runs this.

python frameworks.py NAME MODEL PLAN COMMAND...

NAME is a key of `AGENTS`; MODEL the base URL of a model with OpenAI's chat completions; PLAN "run", or "cancel": then the
task of the agent is cancelled when a line comes on stdin, "cancelled" is printed, and the agent's servers live on until stdin
ends. "alone" is printed in place of an answer that did not come.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

MODEL = "scripted"
ANSWER_SECONDS_MAX = 60
"""Of a request to the bridge: openai-agents has five, in which a call with a limit of two may not end where others have the
processors."""
Run = Callable[[], Awaitable[object]]


@asynccontextmanager
async def openai_agents(url: str, command: str, arguments: list[str]) -> AsyncGenerator[Run]:
    from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
    from agents.mcp import MCPServerStdio
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    model = OpenAIChatCompletionsModel(MODEL, AsyncOpenAI(base_url=url, api_key="none"))
    parameters: Any = {"command": command, "args": arguments}
    async with MCPServerStdio(parameters, client_session_timeout_seconds=ANSWER_SECONDS_MAX) as server:
        agent = Agent(name="agent", model=model, mcp_servers=[server])

        async def run() -> object:
            return (await Runner.run(agent, "go")).final_output

        yield run


@asynccontextmanager
async def pydantic_ai(url: str, command: str, arguments: list[str]) -> AsyncGenerator[Run]:
    from fastmcp.client.transports import StdioTransport
    from pydantic_ai import Agent
    from pydantic_ai.mcp import MCPToolset
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=url, api_key="none"))
    agent = Agent(model, toolsets=[MCPToolset(StdioTransport(command, arguments))])
    async with agent:

        async def run() -> object:
            return (await agent.run("go")).output

        yield run


@asynccontextmanager
async def langchain(url: str, command: str, arguments: list[str]) -> AsyncGenerator[Run]:
    from langchain.agents import create_agent
    from langchain_mcp_adapters.client import MultiServerMCPClient
    from langchain_mcp_adapters.tools import load_mcp_tools
    from langchain_openai import ChatOpenAI

    client = MultiServerMCPClient({"toolcell": {"transport": "stdio", "command": command, "args": arguments}})
    async with client.session("toolcell") as session:
        tools = await load_mcp_tools(session)
        agent: Any = create_agent(ChatOpenAI(model=MODEL, base_url=url, api_key="none"), tools)

        async def run() -> object:
            said = await agent.ainvoke({"messages": [{"role": "user", "content": "go"}]})
            return said["messages"][-1].content

        yield run


AGENTS = {"openai-agents": openai_agents, "pydantic-ai": pydantic_ai, "langchain": langchain}


async def main(name: str, url: str, plan: str, command: str, *arguments: str) -> None:
    lines = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(lines)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    async with AGENTS[name](url, command, list(arguments)) as run:
        if plan == "run":
            print(await run(), flush=True)
            return
        running = asyncio.ensure_future(run())
        await lines.readline()
        running.cancel()
        await asyncio.wait({running})
        print("cancelled" if running.cancelled() else f"ended: {running.exception()!r}", flush=True)
        await lines.read()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
