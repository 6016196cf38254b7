"""Which permission rule holds for a tool."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from toolcell import _paths
from toolcelld.catalog.discovery.sources import project_directory
from toolcelld.config.load import Config
from toolcelld.config.permissions import Rule, Tier, last_match, strictest
from toolcelld.config.project_file import PROJECT_FILE
from toolcelld.config.remedies import CONFIG_FILE

if TYPE_CHECKING:
    from toolcelld.catalog.catalog import ToolInfo


def rule_for(config: Config, tool: ToolInfo) -> Rule | None:
    """Return the rule that holds for a tool: the user's last match, or that of root's file or its project's if that is stricter.

    None if no rule matches; the tool is allowed then.
    """
    theirs, roots = tool.file.asked.permissions, config.enforce.permissions
    if not config.permissions and not theirs and not roots:
        return None
    source, tier = tool.file.source, tier_of(config, tool)
    found: list[Rule] = []
    if (match := last_match(roots, tool.name, source, tier)) is not None:
        found.append(Rule(*match, _paths.SYSTEM_CONFIG, enforced=True))
    if (match := last_match(config.permissions, tool.name, source, tier)) is not None:
        found.append(Rule(*match, CONFIG_FILE))
    if (match := last_match(theirs, tool.name, source, tier)) is not None:
        found.append(Rule(*match, os.path.join(project_directory(tool.file), PROJECT_FILE)))
    return strictest(found)


def denied_by(config: Config, tool: ToolInfo) -> str:
    """Return the rule that denies a tool, as text; empty if none does."""
    rule = rule_for(config, tool)
    return str(rule) if rule is not None and rule.action == "deny" else ""


def tier_of(config: Config, tool: ToolInfo) -> Tier:
    """Return what a tool may do at most: read, write files, or also start programs.

    It follows from what its file and [tool.NAME] say and its cell enforces. A tool that calls itself destructive is with those
    that start programs.
    """
    said = [rule.read_only for _, rule in config.rules_for(tool.name) if "read_only" in rule.model_fields_set]
    if said[-1] if said else tool.read_only:
        return "read"
    return "write" if tool.declared.get("programs", True) is False and not tool.destructive else "exec"
