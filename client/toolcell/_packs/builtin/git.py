"""The built-in tools `git-status`, `git-diff-summary` and `workspace-info`."""

from __future__ import annotations

from typing import Annotated

from toolcell import ToolContext, ToolError, tool

from ._repository import Repository, opened, without_credentials

IN_SUBMODULES = "--ignore-submodules=dirty"
"""A submodule's own git would read the submodule's own configuration; which commit it is at is still compared."""


@tool(name="git-status", read_only=True, idempotent=True, timeout=30)
async def git_status(
    context: ToolContext,
    path: Annotated[str, "Only what is below this directory; all of the repository by default"] = "",
) -> str:
    """Show what has changed in the project's git repository, as `git status --porcelain` prints it."""
    async with opened(context) as repository:
        return await repository.git("status", "--porcelain", IN_SUBMODULES, *(("--", path) if path else ()))


@tool(name="git-diff-summary", read_only=True, idempotent=True, timeout=30)
async def git_diff_summary(
    context: ToolContext,
    staged: Annotated[bool, "Whether to summarise what is staged, instead of what is not"] = False,
) -> str:
    """Summarise the uncommitted changes of the project's git repository, as `git diff --stat` prints them."""
    async with opened(context) as repository:
        kind = ("--cached",) if staged else ()
        return await repository.git(
            "diff", "--stat", "--no-ext-diff", "--no-textconv", "--no-color", IN_SUBMODULES, *kind
        )


@tool(name="workspace-info", read_only=True, idempotent=True, timeout=30)
async def workspace_info(context: ToolContext) -> dict[str, object]:
    """Return the project's path, its git branch and the URL of its remote; what is not known is null, with the reason."""
    known: dict[str, object] = {"path": str(context.worktree), "branch": None, "remote": None}
    errors: dict[str, str] = {}
    try:
        async with opened(context) as repository:
            for name, field in (("branch", _branch(repository)), ("remote", _remote(repository))):
                try:
                    known[name] = await field
                except ToolError as error:
                    errors[name] = str(error)
    except ToolError as error:
        errors = {"branch": str(error), "remote": str(error)}
    return {**known, "errors": errors} if errors else known


async def _branch(repository: Repository) -> str:
    branch = await repository.git("branch", "--show-current")
    if not branch.strip():
        raise ToolError("No branch is checked out: HEAD is detached.")
    return branch.strip()


async def _remote(repository: Repository) -> str:
    urls = {
        key: url
        for key, url in repository.config.items()
        if key.startswith("remote.") and key.endswith(".url")
    }
    if not urls:
        raise ToolError("The repository has no remote.")
    return without_credentials(urls.get("remote.origin.url") or next(iter(urls.values())))
