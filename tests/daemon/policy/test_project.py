"""The project of a session: its root, who else can write in it, and what in it stays as it is."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from toolcell import _owners as module
from toolcell._paths import is_below
from toolcelld.config.protected import PROTECTED
from toolcelld.inspector import answers
from toolcelld.inspector.process import InspectionError
from toolcelld.policy import repository
from toolcelld.policy.project import Project, find_project
from toolcelld.policy.repository import Allowance, named_by, submodules

NAMES = (".claude", ".envrc", "*.code-workspace", ".github/hooks", "CLAUDE.md", ".venv")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory that only this user can write."""
    root = tmp_path / "around" / "work"
    root.mkdir(parents=True, mode=0o755)
    yield root
    for path in (tmp_path / "around", root):
        path.chmod(0o755)


def put(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def find(directory: Path, home: str = "/home/me", tools: tuple[str, ...] = ()) -> Project:
    return find_project(str(directory), home=home, names=NAMES, tools=tools)


def protected(found: Project) -> list[str]:
    return sorted(os.path.relpath(place.path, found.directory) for place in found.protected)


def held(found: Project) -> list[str]:
    return [os.path.relpath(place.path, found.directory) for place in found.held]


def test_a_project_is_the_nearest_repository_around(place: Path) -> None:
    deep = place / "a/b"
    deep.mkdir(parents=True)
    assert (find(deep).directory, find(deep).worktree) == (str(deep), str(deep))
    put(place / ".git/HEAD")
    found = find(deep)
    assert (found.directory, found.worktree, found.fault) == (str(place), str(place), "")
    assert held(found) == [".", "a", "a/b"], "what is above the session's tools must not be renamed"
    assert [look.place.path for look in found.looked] == [str(place), str(place / "a"), str(deep)]


def test_a_repository_that_holds_the_home_directory_is_no_project(place: Path) -> None:
    put(place / ".git/HEAD")
    work = place / "src"
    work.mkdir()
    found = find(work, home=str(place))
    assert (found.directory, found.worktree) == (str(work), str(place))
    assert find(work, home=str(place / "home/me")).directory == str(work)


def test_a_directory_that_others_can_write_ends_the_widening(place: Path) -> None:
    put(place.parent / ".git/HEAD")
    assert find(place).directory == str(place.parent)
    for mode in (0o777, 0o1777):
        place.parent.chmod(mode)
        assert find(place).directory == str(place), oct(mode)
    assert find(place).fault == "", "in a sticky directory others cannot rename what is this user's"
    place.parent.chmod(0o777)
    assert find(place).fault == f"{place.parent} can be written by every user"
    place.parent.chmod(0o755)
    place.chmod(0o1777)
    assert find(place).fault == f"{place} can be written by every user"


def test_a_group_that_is_only_this_users_may_write(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place.chmod(0o775)
    monkeypatch.setattr(module, "_is_private", {place.stat().st_gid: True}.get)
    assert find(place).fault == ""
    monkeypatch.setattr(module, "_is_private", {place.stat().st_gid: False}.get)
    assert "by the group" in find(place).fault


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes directories of other users")
def test_a_directory_of_another_user_ends_the_widening(place: Path) -> None:
    put(place.parent / ".git/HEAD")
    os.chown(place.parent, 4242, 4242)
    found = find(place)
    assert (found.directory, found.fault) == (str(place), f"{place.parent} belongs to the user 4242")
    os.chown(place.parent, 0, 0)
    os.chown(place.parent / ".git", 4242, 4242)
    assert find(place).directory == str(place), "a .git that another user made"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes directories of other users")
def test_an_owner_that_a_namespace_does_not_map_is_accepted_on_the_way_only(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(place.parent, 65534, 65534)
    monkeypatch.setattr(module, "unmapped", lambda: 65534)
    assert find(place).fault == ""
    os.chown(place, 65534, 65534)
    assert find(place).fault


def test_a_path_that_became_a_link_is_refused(place: Path) -> None:
    (place / "real").mkdir()
    (place / "link").symlink_to("real")
    with pytest.raises(OSError):
        find(place / "link")


def test_what_programs_outside_of_cells_read_is_protected(place: Path) -> None:
    for name in (
        ".git/config",
        ".claude/settings.json",
        ".github/hooks/x",
        "x.code-workspace",
        ".toolcell/tools/t.py",
        "src/x",
    ):
        put(place / name)
    found = find(place)
    assert protected(found) == [".claude", ".git", ".github/hooks", ".toolcell", "x.code-workspace"]
    assert held(found) == [".", ".github"]
    assert found.git == (str(place / ".git"),)


def test_links_are_protected_with_what_they_lead_to(place: Path) -> None:
    put(place / "agents/claude/settings.json")
    (place / ".claude").symlink_to("agents/claude")
    (place / "CLAUDE.md").symlink_to("docs/agents.md")
    put(place / "docs/agents.md")
    (place / ".envrc").symlink_to("/etc/passwd")
    assert protected(find(place)) == [".claude", ".envrc", "CLAUDE.md", "agents/claude", "docs/agents.md"]
    assert held(find(place)) == [".", "agents", "docs"]


def test_what_a_link_will_lead_to_is_looked_for(place: Path) -> None:
    (place / "later").mkdir()
    (place / ".claude").symlink_to("later/claude")
    looked = {os.path.relpath(look.place.path, place): look.names for look in find(place).looked}
    assert looked["later"] == ("claude",)


def test_a_loop_of_links_ends(place: Path) -> None:
    (place / ".claude").symlink_to(".envrc")
    (place / ".envrc").symlink_to(".claude")
    assert protected(find(place)) == [".claude", ".envrc"]


def test_tools_and_environments_of_the_user_in_the_project_are_protected(place: Path, tmp_path: Path) -> None:
    put(place / "company/tools/t.py")
    (tmp_path / "mine").symlink_to(place / "company/tools")
    assert protected(find(place, tools=(str(tmp_path / "mine"), "/usr/lib", str(place)))) == ["company/tools"]
    assert held(find(place, tools=(str(place / "company/tools"),))) == [".", "company"]
    missing = find(place, tools=(str(place / "company/other"),))
    assert str(place / "company") in [look.place.path for look in missing.looked]


def test_what_gits_configuration_names_is_protected(place: Path) -> None:
    put(
        place / ".git/config",
        '[core]\n\thooksPath = "my hooks"\n[include]\n\tpath = ../git/config\n[core]\n\tHooksPath=x\n',
    )
    put(place / "my hooks/pre-commit")
    put(place / "git/config")
    put(place / "scripts/check")
    (place / ".git/hooks").mkdir()
    (place / ".git/hooks/pre-push").symlink_to("../../scripts/check")
    assert protected(find(place)) == [".git", "git/config", "my hooks", "scripts/check"]
    assert str(place / "x") in set(named_by(str(place / ".git"), str(place), "/nonexistent", Allowance()))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("#" * 2**18 + "\n", "/.git/config is longer than is read"),
        (
            '[alias "x"]\n' + "a = !./x y/z\n" * 600,
            "/.git/config and git's other configurations here are longer than is read",
        ),
    ],
)
def test_a_project_of_which_more_would_have_to_be_read_cannot_be_trusted(
    place: Path, text: str, why: str
) -> None:
    put(place / ".git/config", text)
    found = find(place)
    assert (found.unread, found.trustworthy) == (f"{place}{why}", False)


def test_all_configurations_of_a_project_have_one_allowance(place: Path) -> None:
    put(place / ".gitmodules", "".join(f'[submodule "{n}"]\npath = m{n}\n' for n in range(5)))
    for number in range(5):
        put(place / f"m{number}/.git/config", f"# {number}\n" + "#" * (2**17 - 10) + "\n")
    put(place / ".git/config", "")
    found = find(place)
    assert len(protected(found)) == 6
    assert (
        found.unread == f"{place}/m4/.git/config and git's other configurations here are longer than is read"
    )


def test_of_more_entries_than_are_held_no_more_are_looked_at(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(50):
        put(place / f"CLAUDE{number}.md")
    put(place / ".git/HEAD")
    monkeypatch.setattr("toolcelld.policy.project.PLACES_MAX", 5)
    looked: list[str] = []
    realpath = os.path.realpath

    def noted(path: str) -> str:
        looked.append(path)
        return realpath(path)

    monkeypatch.setattr(os.path, "realpath", noted)
    found = find_project(str(place), home="/nonexistent", names=["CLAUDE*.md"])
    assert (len(found.protected), found.git) == (5, (f"{place}/.git",))
    assert len(looked) < 12


def test_a_directory_is_not_listed_for_each_name_that_is_missing(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(place / ".git/config", '[alias "x"]\n' + "".join(f"a = !./x{n}\n" for n in range(1000)))
    listed: list[str] = []
    scandir = os.scandir

    def noted(path: str) -> Any:
        listed.append(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", noted)
    found = find(place)
    assert len(found.looked[0].names) > 1000
    assert len(listed) < 20


def test_what_git_would_run_is_protected_however_it_is_named(place: Path, tmp_path: Path) -> None:
    put(place / ".git/config", "[include] path = ../shared.gitconfig # ours\n")
    put(place / "shared.gitconfig", '[include] path = more.gitconfig\n[core] hooksPath = .git"hooks"\n')
    put(place / "more.gitconfig", '[core] fsmonitor = ./fsm.sh\n[filter "x"] clean = sh clean.sh %f\n')
    put(tmp_path / "home/.gitconfig", "[core] hooksPath = .husky-of-all\n")
    for name in ("fsm.sh", "clean.sh", ".githooks/pre-commit", ".husky-of-all/pre-commit", "other.sh"):
        put(place / name)
    assert protected(find(place, home=str(tmp_path / "home"))) == [
        ".git", ".githooks", ".husky-of-all", "clean.sh", "fsm.sh", "more.gitconfig", "shared.gitconfig",
    ]  # fmt: skip


def test_a_file_in_place_of_git_is_protected_with_the_directory_that_it_names(place: Path) -> None:
    put(place / ".git", "gitdir: meta\n")
    put(place / "meta/config")
    assert protected(find(place)) == [".git", "meta"]


def test_names_are_those_of_everywhere_and_those_of_one_place(place: Path) -> None:
    put(place / ".git", "gitdir: meta[1]\n")
    put(place / "meta[1]/config")
    names = find(place, tools=(str(place / "deep/mine"), str(place / "deep"))).names
    assert set(NAMES) <= set(names)
    assert "/meta[[]1]" in names
    assert "/deep" in names
    assert not any(name.startswith("/.git") for name in names)


def git(*words: str, at: Path) -> str:
    options = ["-c", "user.name=x", "-c", "user.email=x@x", "-c", "protocol.file.allow=always"]
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    return subprocess.run(
        ["git", *options, *words], cwd=at, check=True, capture_output=True, text=True, env=environment
    ).stdout.strip()


@pytest.fixture
def linked(place: Path) -> Path:
    """A worktree beside its repository, as git makes it."""
    main = place / "main"
    main.mkdir()
    git("init", at=main)
    git("commit", "--allow-empty", "-m", "x", at=main)
    git("worktree", "add", str(place / "linked"), at=main)
    return place / "linked"


def opened(found: Project) -> list[str]:
    return [place.path for place in found.repository]


def test_the_repository_of_a_linked_worktree_is_found(linked: Path) -> None:
    common = linked.parent / "main/.git"
    found = find(linked)
    assert (found.directory, opened(found)) == (str(linked), [str(common)])
    assert found.repository[0].is_at(common.stat())
    assert found.repository[0] in found.places
    assert protected(found) == [".git"]
    assert opened(find(linked.parent / "main")) == [], "its own .git is in the project"
    below = linked / "a/b"
    below.mkdir(parents=True)
    assert opened(find(below)) == [str(common)]
    for name, value in (("gitdir", "../../../../linked/.git"), ("commondir", "../..")):
        (common / "worktrees/linked" / name).write_text(f"{value}\n")  # as with worktree.useRelativePaths
    (linked / ".git").write_text("gitdir: ../main/.git/worktrees/linked\n")
    assert opened(find(linked)) == [str(common)]


def test_metadata_in_another_place_than_git_has_it_opens_nothing(linked: Path) -> None:
    common = linked.parent / "main/.git"
    (common / "worktrees").rename(common / "others")
    put(linked / ".git", f"gitdir: {common}/others/linked\n")
    git("status", at=linked)
    assert opened(find(linked)) == []
    for name in ("HEAD", "objects/x", "refs/x"):
        put(linked / "meta" / name)
    (common / "others/linked").rename(linked / "meta/worktrees")
    put(linked / ".git", "gitdir: meta/worktrees/x\n")
    put(linked / "meta/worktrees/x/gitdir", f"{linked}/.git\n")
    put(linked / "meta/worktrees/x/commondir", "../..\n")
    assert opened(find(linked)) == [], "it is in the project"


def test_a_repository_with_too_many_worktrees_is_not_opened(
    linked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository, "WORKTREES_MAX", 1)
    assert opened(find(linked)) != []
    git("worktree", "add", str(linked.parent / "second"), at=linked)
    assert opened(find(linked)) == []


def test_a_worktree_within_the_main_one_has_the_repository_around_it(linked: Path) -> None:
    main = linked.parent / "main"
    git("worktree", "add", ".claude/worktrees/x", at=main)
    found = find(main / ".claude/worktrees/x")
    assert (found.directory, opened(found)) == (str(main / ".claude/worktrees/x"), [str(main / ".git")])


@pytest.mark.parametrize("away", ["gitdir", "commondir", "HEAD"])
def test_what_the_repository_does_not_say_of_a_worktree_opens_nothing(linked: Path, away: str) -> None:
    common = linked.parent / "main/.git"
    (common / "HEAD" if away == "HEAD" else common / "worktrees/linked" / away).unlink()
    assert opened(find(linked)) == []


def test_a_git_file_that_names_the_worktree_of_another_opens_nothing(linked: Path) -> None:
    other = linked.parent / "other"
    put(other / ".git", (linked / ".git").read_text())
    assert opened(find(other)) == []
    (linked / ".git").rename(linked / "git")
    (other / ".git").unlink()
    (other / ".git").symlink_to(linked / "git")
    assert opened(find(other)) == []


@pytest.mark.parametrize("common", ["/", "{place}", "{place}/secrets", "{place}/main/.git/objects"])
def test_a_git_file_cannot_name_a_directory_that_is_no_repository(linked: Path, common: str) -> None:
    """The project is unpacked into a directory `worktrees`, and brings what a repository would say of it."""
    place = linked.parent
    named = common.format(place=place)
    for at in (place / "worktrees/p", place / "secrets/worktrees/p"):
        put(at / ".git", "gitdir: .\n")
        put(at / "gitdir", f"{at}/.git\n")
        put(at / "commondir", f"{named}\n")
        assert opened(find(at)) == []
        put(at / "sub/.git", f"gitdir: {at}\n")  # a session in a directory of the project
        put(at / "gitdir", f"{at}/sub/.git\n")
        assert opened(find(at / "sub")) == []
        put(at / "commondir", "../..\n")
        assert opened(find(at / "sub")) == []
    put(linked.parent / "main/.git/worktrees/linked/commondir", f"{named}\n")
    assert opened(find(linked)) == []


def test_what_a_project_brings_itself_opens_no_more_than_that(place: Path) -> None:
    for name in ("HEAD", "objects/x", "refs/x"):
        put(place / "meta" / name)
    put(place / "sub/.git", "gitdir: ../meta/worktrees/x\n")
    put(place / "meta/worktrees/x/gitdir", f"{place}/sub/.git\n")
    put(place / "meta/worktrees/x/commondir", "../..\n")
    assert opened(find(place / "sub")) == [str(place / "meta")]
    (place / "meta").rename(place / "real")
    (place / "meta").symlink_to("real")
    assert opened(find(place / "sub")) == [], "a link could lead out of the project"
    (place / "meta").unlink()
    (place / "real").rename(place / "meta")
    (place / "meta/objects").rename(place / "objects")
    (place / "meta/objects").symlink_to("../objects")
    assert opened(find(place / "sub")) == []


def test_a_repository_that_others_can_write_is_not_opened(linked: Path) -> None:
    for directory in ("main/.git", "main/.git/worktrees", "main/.git/worktrees/linked"):
        for mode in (0o777, 0o1777):
            (linked.parent / directory).chmod(mode)
            assert opened(find(linked)) == [], (directory, oct(mode))
        (linked.parent / directory).chmod(0o755)
    (linked.parent / "main").chmod(0o777)
    assert opened(find(linked)) == []
    (linked.parent / "main").chmod(0o1777)
    assert opened(find(linked)) != []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes directories of other users")
def test_a_repository_of_another_user_is_not_opened(linked: Path) -> None:
    os.chown(linked.parent / "main/.git", 4242, 4242)
    assert opened(find(linked)) == []


def test_a_repository_is_not_opened_where_the_home_directory_or_worktrees_are_in_it(place: Path) -> None:
    bare = place / "bare"
    bare.mkdir()
    git("init", "--bare", at=bare)
    tree = git("hash-object", "-w", "-t", "tree", "/dev/null", at=bare)
    git("update-ref", "refs/heads/x", git("commit-tree", "-m", "x", tree, at=bare), at=bare)
    git("worktree", "add", str(place / "linked"), "x", at=bare)
    assert opened(find(place / "linked")) == [str(bare)]
    assert opened(find(place / "linked", home=f"{bare}/me")) == []
    git("worktree", "add", "--detach", "within", "x", at=bare)
    assert opened(find(bare / "within")) == []
    assert opened(find(place / "linked")) == [], "the files of the other worktree would be opened"


@pytest.mark.parametrize(
    "text", ["", "gitdir:", "gitdir: \0", "gitdir: /", "gitdir: /worktrees/x", "gitdir: " + "../" * 5000 + "worktrees/x", "gitdir: .git/worktrees/x"]
)  # fmt: skip
def test_a_git_file_of_any_content_opens_nothing(place: Path, text: str) -> None:
    put(place / ".git", text)
    assert opened(find(place)) == []


@pytest.mark.parametrize("version", ["2", "4"])
def test_the_git_of_each_submodule_is_protected(place: Path, version: str) -> None:
    put(place / "libs/sub/f")
    git("init", at=place / "libs/sub")
    git("add", "f", at=place / "libs/sub")
    git("commit", "-m", "x", at=place / "libs/sub")
    git("init", at=place)
    git("config", "index.version", version, at=place)
    git("add", "libs/sub", at=place)
    if version == "4":  # names are compressed there, and `.gitmodules` has them
        put(place / ".gitmodules", '[submodule "sub"]\n\tpath = libs/sub\n')
    assert "libs/sub" in submodules(str(place / ".git"))
    found = find(place)
    assert protected(found) == [".git", "libs/sub/.git"]
    assert held(found) == [".", "libs", "libs/sub"]


@pytest.mark.parametrize("index", [b"", b"DIRC" + b"\0\0\xe0\0" * 5000, os.urandom(50_000)])
def test_an_index_that_is_none_names_nothing_that_counts(place: Path, index: bytes) -> None:
    put(place / ".git/config", "[core\nhooksPath = \0\n")
    (place / ".git/index").write_bytes(index)
    assert protected(find(place)) == [".git"]


def test_a_directory_that_the_user_accepts_is_no_fault(place: Path) -> None:
    place.chmod(0o777)
    assert find(place).fault
    assert not find_project(str(place), home="/", safe=(str(place),)).fault


def test_a_source_of_the_user_that_is_the_project_or_around_it_is_told(place: Path) -> None:
    def sources(*paths: Path) -> tuple[str, ...]:
        named = [str(path) for path in paths]
        return find_project(str(place), home="/home/me", tools=named, sources=named).sources

    assert sources(place) == (str(place),)
    assert sources(place.parent) == (str(place.parent),)
    assert sources(place / "below", place.parent / "beside") == ()


@pytest.mark.parametrize(
    "name",
    [
        "lefthook.yaml", "lefthook-local.toml", ".lefthook.yml", "mise.local.toml", ".mise.local.toml", ".mise/config.toml",
        "mise/config.toml", ".config/mise.toml", "AGENTS.override.md", "CLAUDE.local.md", ".github/agents/a.md",
        ".github/prompts/p.md", ".github/copilot-instructions.md", ".github/instructions/i.md", ".copilot/mcp.json", ".yarnrc",
        ".yarnrc.yml", ".pnp.cjs", ".pnpmfile.cjs", ".nvimrc", ".vimrc", ".pre-commit-config.yml", ".kilocode/x",
        ".amazonq/x", ".junie/x", ".kiro/x", ".trae/x", ".continue/x", "crush.json", ".crush.json", ".goosehints", ".rules",
        ".lldbinit", ".bazelrc", ".irbrc", "bunfig.toml", "opencode.jsonc", ".aider.conf.yml",
    ],
)  # fmt: skip
def test_every_name_that_a_program_reads_unasked_is_protected(place: Path, name: str) -> None:
    put(place / name)
    found = find_project(str(place), home="/home/me", names=PROTECTED)
    assert any(is_below(str(place / name), its.path) for its in found.protected)


def test_a_repository_whose_configuration_cannot_be_read_cannot_be_trusted(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / ".git").mkdir()
    (place / ".git" / "config").write_text("[core]\n\tpager = less\n")

    def late(_: bytes) -> NoReturn:
        raise InspectionError("takes more than a second to read")

    assert find_project(str(place), home="/home/u").trustworthy
    monkeypatch.setattr(answers, "git_config", late)
    project = find_project(str(place), home="/home/u")
    assert not project.trustworthy
    assert project.unread == f"{place}/.git/config takes more than a second to read"
