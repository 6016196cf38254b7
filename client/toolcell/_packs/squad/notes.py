"""What agents of a team write down: decisions, learnings and skills, below `.squad` of the project."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Literal

from toolcell import Field, ToolContext, ToolResult, tool

from ._files import changed, created, named, names, read, slug, written
from ._result import TEXT_BYTES_MAX, failure, squad_results, success

QUOTED_CHARACTERS_MAX = 80
SKELETON = "# Project Context\n\n## Learnings\n\n"
LEARNINGS = re.compile(r"^## Learnings[ \t]*$", re.MULTILINE)

Name = Annotated[str, Field(min_length=1, max_length=64)]
Text = Annotated[str, Field(min_length=1)]


@tool(name="squad_decide", programs=False, output_bytes=TEXT_BYTES_MAX)
@squad_results("Failed to write decision")
async def decide(
    context: ToolContext,
    title: Annotated[
        Text, Field(max_length=200, description="The title; a slug of it is in the file's name")
    ],
    body: Annotated[Text, Field(description="The whole decision, in Markdown")],
    agentName: Annotated[Name, Field(description="The agent that proposes it")],  # noqa: N803
    category: Literal["architecture", "process", "security", "feature", "team", "general"] = "general",
) -> ToolResult:
    """Propose a decision of the team. It is written to the inbox of decisions, from which it is merged."""
    agent, line = named(agentName, "an agent"), " ".join(title.split())
    today = datetime.now(UTC).date().isoformat()
    text = f"### {today}: {line}\n\n**By:** {agent}\n**Category:** {category}\n\n{body}\n"
    name = created(context.worktree, ".squad", "decisions", "inbox", f"{agent}-{slug(title)}.md", text=text)
    return success(
        f'Decision "{line}" written to inbox as {name}. Scribe will merge to decisions.md.', file=name
    )


@tool(name="squad_memory", programs=False, output_bytes=TEXT_BYTES_MAX)
@squad_results("Failed to store learning")
async def memory(
    context: ToolContext,
    agentName: Annotated[Name, Field(description="The agent whose history it is")],  # noqa: N803
    learning: Annotated[
        Text, Field(max_length=20_000, description="What was learned, as one clear statement")
    ],
    category: Literal["technical", "process", "architecture", "team", "general"] = "general",
) -> ToolResult:
    """Store what an agent learned, below "Learnings" of its history."""
    agent = named(agentName, "an agent")
    entry = f"- **[{category}]** {_item(learning)}\n"
    changed(context.worktree, ".squad", "agents", agent, "history.md", change=lambda text: _with(text, entry))
    quoted = f"{learning[:QUOTED_CHARACTERS_MAX]}..."
    return success(f'Learning stored in {agent}\'s history: "{quoted}"')


@tool(name="squad_skill", programs=False, output_bytes=TEXT_BYTES_MAX)
@squad_results("Skill operation failed")
async def skill(
    context: ToolContext,
    action: Literal["read", "write", "list"],
    skillName: Annotated[str | None, Field(description="Which one, to read or write")] = None,  # noqa: N803
    content: Annotated[str | None, Field(description="Its text in Markdown, to write")] = None,
) -> ToolResult:
    """Read, write or list the skills of the team: texts at .squad/skills/NAME/SKILL.md."""
    base = context.worktree
    if action == "list":
        found = names(base, ".squad", "skills")
        if found is None:
            return success("No skills directory found.", skills=[])
        lines = "".join(f"\n- {name}" for name in found)
        shown = f"**Available Skills ({len(found)}):**{lines}" if found else "No skills found."
        return success(shown, skills=found)
    if not skillName:
        return failure("Error: skillName is required for read/write.", "missing_argument")
    name = named(skillName, "a skill")
    if action == "read":
        text = read(base, ".squad", "skills", name, "SKILL.md")
        if text is None:
            return failure(f'Skill operation failed: there is no skill "{name}".', "not_found")
        return success(text)
    if not content:
        return failure("Error: content is required for write.", "missing_argument")
    written(base, ".squad", "skills", name, "SKILL.md", text=content)
    return success(f'Skill "{name}" written to .squad/skills/{name}/SKILL.md.')


def _item(learning: str) -> str:
    """Return a text as one item of a list: further lines are indented, so that none begins a section."""
    first, *rest = learning.strip().splitlines() or [""]
    return "\n".join([first, *(f"  {line}".rstrip() for line in rest)])


def _with(history: str | None, entry: str) -> str:
    """Return a history with an entry at the end of its learnings."""
    text = SKELETON if history is None else history
    section = LEARNINGS.search(text)
    if section is None:
        return f"{text}\n## Learnings\n\n{entry}"
    following = text.find("\n## ", section.end())
    if following < 0:
        return f"{text.rstrip()}\n\n{entry}"
    return f"{text[:following]}\n{entry}{text[following:]}"
