"""The built-in git tools: what git says, and that nothing of what a repository configures is run."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from toolcell import ToolError
from toolcell._packs.builtin import _repository
from toolcell._packs.builtin import git as tools
from toolcell.testing import FakeContext

pytestmark = pytest.mark.anyio

ENVIRONMENT = {
    "PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}  # fmt: skip


def git(directory: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=directory, env=ENVIRONMENT, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with two commits' worth of files, of which one is changed, one staged and one new."""
    path = tmp_path / "repository"
    (path / "sub").mkdir(parents=True)
    git(path, "init", "--initial-branch", "trunk")
    for name in ("a.txt", "b.txt", "sub/c.txt"):
        (path / name).write_text("one\n")
    git(path, "add", ".")
    git(path, "commit", "-m", "first")
    (path / "a.txt").write_text("one\ntwo\n")
    (path / "b.txt").write_text("other\n")
    git(path, "add", "b.txt")
    (path / "sub" / "new.txt").write_text("new\n")
    return path


def context(path: Path, directory: Path | None = None) -> FakeContext:
    return FakeContext(directory=directory or path, worktree=path)


async def test_the_status_is_that_of_git(repository: Path) -> None:
    assert await tools.git_status(context(repository)) == " M a.txt\nM  b.txt\n?? sub/new.txt\n"
    assert await tools.git_status(context(repository), "sub") == "?? sub/new.txt\n"
    assert await tools.git_status(context(repository, repository / "sub"), ".") == "?? sub/new.txt\n"


async def test_the_summary_is_of_what_is_staged_or_of_what_is_not(repository: Path) -> None:
    assert await tools.git_diff_summary(context(repository)) == (
        " a.txt | 1 +\n 1 file changed, 1 insertion(+)\n"
    )
    assert (await tools.git_diff_summary(context(repository), staged=True)).startswith(" b.txt | 2 +-\n")


async def test_the_workspace_is_told_with_its_branch_and_remote(repository: Path) -> None:
    assert await tools.workspace_info(context(repository)) == {
        "path": str(repository),
        "branch": "trunk",
        "remote": None,
        "errors": {"remote": "The repository has no remote."},
    }
    git(repository, "remote", "add", "fork", "https://example.org/fork.git")
    git(repository, "remote", "add", "origin", "https://user:token@example.org/it.git")
    assert await tools.workspace_info(context(repository)) == {
        "path": str(repository), "branch": "trunk", "remote": "https://example.org/it.git",
    }  # fmt: skip
    git(repository, "checkout", "--detach")
    assert "HEAD is detached" in str(await tools.workspace_info(context(repository)))


async def test_a_directory_without_a_repository_is_said(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="is no git repository"):
        await tools.git_status(context(tmp_path))
    known = await tools.workspace_info(context(tmp_path))
    assert (known["path"], known["branch"], known["remote"]) == (str(tmp_path), None, None)


async def test_a_linked_worktree_has_its_own_branch_and_index(repository: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(repository, "worktree", "add", "-b", "side", str(linked))
    (linked / "a.txt").write_text("here\n")
    assert await tools.git_status(context(linked)) == " M a.txt\n"
    assert (await tools.workspace_info(context(linked)))["branch"] == "side"


async def test_a_repository_with_sha256_is_read(tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.mkdir()
    git(path, "init", "--object-format=sha256")
    (path / "a").write_text("")
    git(path, "add", "a")
    assert await tools.git_status(context(path)) == "A  a\n"


@pytest.fixture
def hostile(repository: Path, tmp_path: Path) -> Path:
    """The repository with a program in every place of its configuration where git would run one."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\ncat\n")
    program.chmod(0o755)
    git(repository, "init", "inner")
    for key, value in {
        "user.name": "a", "user.email": "a@example.org", "core.fsmonitor": program, "diff.external": program,
    }.items():  # fmt: skip
        git(repository / "inner", "config", key, str(value))
    (repository / "inner" / "file").write_text("")
    git(repository / "inner", "add", "file")
    git(repository / "inner", "-c", "core.fsmonitor=false", "commit", "-m", "inner")
    git(repository, "add", "inner")
    (repository / "inner" / "file").write_text("changed")
    (repository / ".gitattributes").write_text("* diff=evil filter=evil\n")
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("post-index-change", "post-checkout", "fsmonitor-watchman", "reference-transaction"):
        (hooks / name).symlink_to(program)
    included = tmp_path / "included"
    included.write_text(f"[core]\n\tfsmonitor = {program}\n")
    for key, value in {
        "core.fsmonitor": program, "core.hooksPath": hooks, "core.pager": program, "core.editor": program,
        "diff.external": program, "diff.evil.command": program, "diff.evil.textconv": program,
        "filter.evil.clean": program, "filter.evil.smudge": program, "filter.evil.process": program,
        "filter.evil.required": "true", "pager.status": program, "pager.diff": program, "alias.status": f"!{program}",
        "alias.diff": f"!{program}", "include.path": included, "core.sshCommand": program,
        "credential.helper": program, "core.worktree": "/etc", "core.attributesFile": included,
        "protocol.ext.allow": "always", "remote.origin.url": f"ext::{program}", "remote.origin.promisor": "true",
        "extensions.partialClone": "origin", "status.submoduleSummary": "true", "diff.submodule": "log",
        "gpg.program": program, "interactive.diffFilter": program,
    }.items():  # fmt: skip
        git(repository, "config", key, str(value))
    os.utime(repository / "sub" / "c.txt", (1, 1))  # its content is compared, through the filter
    (tmp_path / "ran").unlink()  # it was hostile while it was made
    return repository


async def test_nothing_that_a_repository_configures_is_run(hostile: Path, tmp_path: Path) -> None:
    with suppress(subprocess.CalledProcessError):
        git(hostile, "-c", f"core.worktree={hostile}", "status")
    assert (tmp_path / "ran").exists(), "plain git runs what this repository configures"
    (tmp_path / "ran").unlink()
    assert "?? sub/new.txt" in await tools.git_status(context(hostile))
    assert "a.txt" in await tools.git_diff_summary(context(hostile))
    assert "b.txt" in await tools.git_diff_summary(context(hostile), staged=True)
    assert (await tools.workspace_info(context(hostile)))["branch"] == "trunk"
    assert not (tmp_path / "ran").exists()


async def test_a_missing_object_is_not_fetched(hostile: Path, tmp_path: Path) -> None:
    for path in (hostile / ".git" / "objects").glob("??/*"):
        path.unlink()
    with pytest.raises(ToolError):
        await tools.git_diff_summary(context(hostile), staged=True)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "path", ["..", "../..", "/etc", "--output=x", "a\0b", ":(exclude)a.txt", "sub/../.."]
)
async def test_no_path_is_an_option_a_pattern_or_outside(hostile: Path, tmp_path: Path, path: str) -> None:
    try:
        said = await tools.git_status(context(hostile), path)
    except ToolError:
        said = ""
    assert said == ""
    assert not (hostile / "x").exists()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("git@example.org:a/b.git", "git@example.org:a/b.git"),
        ("https://x:y@example.org:8443/a", "https://example.org:8443/a"),
        ("https://token@[::1]/a", "https://[::1]/a"),
        ("http://u:p@[::1/a", "[::1/a"),
        ("/srv/a.git", "/srv/a.git"),
    ],
)
def test_credentials_of_a_remote_are_not_shown(url: str, shown: str) -> None:
    assert _repository.without_credentials(url) == shown


async def test_a_submodule_with_a_configuration_of_its_own_is_not_entered(
    repository: Path, tmp_path: Path
) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    git(inner, "init")
    (inner / "file").write_text("")
    git(inner, "add", "file")
    git(inner, "commit", "-m", "inner")
    git(repository, "-c", "protocol.file.allow=always", "submodule", "add", str(inner), "module")
    git(repository, "commit", "-m", "with it")
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    git(repository / "module", "config", "core.fsmonitor", str(program))
    (repository / "module" / "file").write_text("changed")
    git(repository, "status")
    (tmp_path / "ran").unlink()  # plain git enters it
    await tools.git_status(context(repository))
    await tools.git_diff_summary(context(repository))
    assert not (tmp_path / "ran").exists()
