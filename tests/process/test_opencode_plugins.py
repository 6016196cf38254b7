"""Plugins of OpenCode 2 as tool files: their tools are found, described and called in each engine."""

from __future__ import annotations

import json

import pytest
from tests.daemons import RunningDaemon
from tests.process.test_typescript import daemon, of_engine, text_of, write

from toolcell.client import Text
from toolcell.client.events import Metadata, Update

__all__ = ["daemon", "of_engine"]

pytestmark = pytest.mark.anyio

ISSUES = """
import { Plugin, Tool } from "@opencode/plugin"

export default Plugin.define({
  id: "issues",
  async setup(ctx) {
    await ctx.session.hook("context", async () => { throw new Error("no session is here") })
    ctx.agent.transform((editor) => editor.add({ name: "reviewer" }))
    for await (const event of ctx.event.subscribe()) throw new Error(`no event is here: ${event}`)
    const registration = await ctx.tool.transform((editor) => {
      editor.namespace({ name: "issue", description: "Issues" })
      editor.add({
        name: "find",
        description: "Find an issue",
        input: {
          type: "object",
          properties: { words: { type: "string", description: "what it says" } },
          required: ["words"],
          additionalProperties: false,
        },
        options: { namespace: "issue", codemode: false },
        async execute({ words }, context) {
          await context.progress({ looked: 3 })
          await context.checkpoint({ content: "one so far" })
          const { sessionID, agent, messageID, id, signal } = context
          return { output: { words, sessionID, agent, messageID, id, aborted: signal.aborted }, metadata: { pages: 2 } }
        },
      })
      editor.add({ name: "old", description: "Old", input: { type: "object" }, execute: async () => ({ content: "old" }) })
      editor.add({
        name: "close",
        description: "Close",
        input: { type: "object", properties: {} },
        execute: async () => { throw new Tool.Error({ message: "It is closed already", metadata: { at: 1 } }) },
      })
      editor.add({
        name: "report",
        description: "Report",
        input: { type: "object", properties: {} },
        execute: async () => ({ content: [
          { type: "text", text: "see" },
          { type: "file", uri: "file:///report.pdf", mime: "application/pdf", name: "report" },
        ] }),
      })
      editor.add({
        name: "count",
        description: "Count",
        input: { type: "object", properties: {} },
        execute: async () => ({ output: { found: 3 } }),
      })
      editor.add({
        name: "who",
        description: "Ask OpenCode",
        input: { type: "object", properties: {} },
        execute: async (_, context) => ({ content: (await ctx.session.get({ sessionID: context.sessionID })).id }),
      })
      editor.update("close", (tool) => { tool.description = `${tool.description} an issue` })
      editor.update("none", () => { throw new Error("there is none") })
      editor.remove("old")
      if (editor.get("issue_find").id !== "issue_find" || editor.list().length !== 5) throw new Error("wrong list")
    })
    return () => registration.dispose()
  },
})
"""
BARE = """
export default {
  id: "bare",
  setup: (ctx) => void ctx.tool.transform((editor) => editor.add({
    name: "where", description: "Where", input: { type: "object", properties: {} },
    execute: async (_, { signal, progress }) => {
      if (ctx.location.directory !== process.cwd()) throw new Error("elsewhere")
      await progress({ waits: true })
      await new Promise((resolve) => signal.addEventListener("abort", resolve))
      await progress({ heard: signal.aborted })
    },
  })),
}
"""


def plugin(setup: str) -> str:
    return f'import {{ Plugin }} from "@opencode/plugin"\nexport default Plugin.define({{ id: "it", setup(ctx) {{ {setup} }} }})\n'


def adding(tool: str) -> str:
    return plugin(f"return void ctx.tool.transform((editor) => editor.add({tool}))")


@pytest.mark.slow
async def test_a_plugin_of_opencode_2_is_a_file_of_its_tools(daemon: RunningDaemon) -> None:
    write(daemon, issues_ts=ISSUES)
    async with daemon.connect() as session:
        assert session.catalog.problems == ()
        tools = session.catalog.tools
        assert sorted(tools) == ["close", "count", "issue_find", "report", "who"]
        assert tools["close"].description == "Close an issue"
        assert tools["issue_find"].input_schema["properties"]["words"]["description"] == "what it says"
        call = session.call(
            "issue_find", {"words": "x"}, session_id="s", message_id="m", agent_name="build", call_id="c-1"
        )
        told = [event async for event in call]
        outcome = await call
        assert outcome.ok, outcome
        told_of = {"words": "x", "sessionID": "s", "agent": "build", "messageID": "m", "id": "c-1"}
        assert json.loads(outcome.text) == outcome.details == {**told_of, "aborted": False}
        assert outcome.metadata == {"looked": 3, "pages": 2}
        assert any(isinstance(event, Metadata) and event.values == {"looked": 3} for event in told)
        assert any(isinstance(event, Update) and event.content == (Text("one so far"),) for event in told)
        wrong = await session.call("issue_find", {"words": 1, "more": 2})
        assert wrong.kind.value == "invalid_arguments"
        closed = await session.call("close")
        assert (closed.kind.value, closed.text) == ("tool_error", "It is closed already")
        counted = await session.call("count")
        assert (counted.text, counted.details) == ('{"found":3}', {"found": 3})
        assert await text_of(session, "report") == "see\n[report: file:///report.pdf]"
        asked = await session.call("who")
        assert asked.text.startswith("session.get() is OpenCode's own"), asked.text


async def test_a_plugin_needs_no_import_and_its_signal_is_the_abort(daemon: RunningDaemon) -> None:
    write(daemon, bare_js=BARE)
    async with daemon.connect() as session:
        call = session.call("where")
        async for event in call:
            if isinstance(event, Metadata):
                break
        call.abort("enough")
        outcome = await call
        assert (outcome.kind.value, outcome.metadata) == ("aborted", {"waits": True, "heard": True})


@pytest.mark.slow
async def test_a_plugin_that_cannot_be_used_is_a_problem_that_says_why(daemon: RunningDaemon) -> None:
    write(
        daemon,
        a_ts=plugin("ctx.session.open()"),
        b_ts=plugin("return ctx.tool.transform((editor) => editor.add({ name: 'b' }))"),
        c_ts=plugin("return ctx.tool.transform((editor) => editor.add({ execute() {}, input: {} }))"),
        d_ts=adding("{ name: 'no name', description: 'D', input: {}, execute() {} }"),
        e_ts=adding("{ name: 'e', description: 'E', input: 7, execute() {} }"),
        f_ts=plugin("ctx.tool.transform(7)"),
    )
    async with daemon.connect() as session:
        assert not session.catalog.tools
        said = {problem.path[-4]: problem.message for problem in session.catalog.problems}
    assert "session.open() is OpenCode's own" in said.pop("a")
    assert "a name and a function execute" in said.pop("b")
    assert "a name and a function execute" in said.pop("c")
    assert "a tool's name is 1 to 64 letters" in said.pop("d")
    assert "its arguments are a number" in said.pop("e")
    assert "edit is not a function" in said.pop("f")
    assert not said
