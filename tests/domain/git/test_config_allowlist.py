"""domain/git/config_allowlist.py: a setting is allowed by its name, some by their value, and nothing else is."""

import pytest

from omac.domain.git.config_allowlist import allowed

ALLOWED = (
    "user.name=Ada", "core.autocrlf=input", "core.sharedrepository=group", "core.sharedrepository=1",
    "branch.x.merge=refs/heads/main", "branch.x.remote=origin", "remote.origin.url=https://example.org/x.git",
    "alias.st=status -sb", "alias.br=branch -vv", "alias.lg=log --graph --oneline HEAD~3",
    "lfs.repositoryformatversion=0", "init.defaultbranch=main", "color.diff=always",
    "receive.fsck.baddate=ignore", "maintenance.gc.enabled=true", "core.fsmonitor=false",
    "format.pretty=oneline", "log.date=iso-local", "log.date=format:%Y-%m-%d %H:%M", "core.commentchar=;",
    "gc.pruneexpire=14.days.ago", "gc.reflogexpire=never", "gc.reflogexpireunreachable=3 months",
    "gc.reflogexpire=1.year",
    "status.short=true", "remote.up.fetch=+refs/heads/*:refs/remotes/up/*", "remote.up.push=refs/heads/x",
    "remote.a/b.c.url=https://h/x",
)  # fmt: skip
REFUSED = (
    "core.fsmonitor=true", "core.fsmonitor=./x", "core.hookspath=.husky", "core.sharedrepository=all",
    "core.sharedrepository=world", "core.sharedrepository=0777", "core.sharedrepository=0664", "core.pager=x",
    "alias.st=!x", "alias.st=log --output=x", "alias.st=reset --hard", "alias.st=checkout -- .", "alias.br=branch -D",
    "alias.ci=commit --amend", "remote.origin.url=ext::x", "remote.origin.vcs=x",
    "remote.origin.promisor=true", "extensions.partialclone=origin", "include.path=x", "filter.x.clean=x",
    "branch.x.remote=ext::x", "diff.x.textconv=x", "http.proxy=x", "credential.helper=x", "nosuch.thing=1",
    "rebase.instructionformat=%s", "rebase.instructionformat=%s%x0aexec x", "pretty.lg=%s%x0aexec x",
    "format.pretty=%s%x0aexec x", "log.date=format:%nexec x", "blame.date=format:%%nexec", "core.commentchar=p",
    "remote.up.fetch=+refs/*:refs/*", "remote.up.push=x:refs/replace/y", "remote.up.mirror=true",
    "remote.--upload-pack.url=https://h/x", "remote.-.prune=true", "remote.-x.fetch=refs/heads/x:refs/remotes/-x/x",
    "remote.\x1bc.url=https://h/x", "remote.a b.url=https://h/x", "remote...url=https://h/x",
    "showbranch.default=--all", "diff.wordregex=(", "status.showuntrackedfiles=no", "diff.ignoresubmodules=all",
    "diff.relative=true", "color.diff.new=black black", "color.status.untracked=0", "core.warnambiguousrefs=false",
    "core.ignorecase=true", "core.logallrefupdates=false",
    "submodule.x.ignore=dirty", "gc.pruneexpire=now", "gc.pruneexpire=13.days.ago", "gc.reflogexpire=1.week",
    "gc.reflogexpireunreachable=all", "gc.worktreepruneexpire=2026-11-21",
)  # fmt: skip


@pytest.mark.parametrize("setting", ALLOWED)
def test_a_setting_without_program_and_location_is_allowed(setting: str) -> None:
    key, _, value = setting.partition("=")
    assert allowed(key, value)


@pytest.mark.parametrize("setting", REFUSED)
def test_nothing_else_is(setting: str) -> None:
    key, _, value = setting.partition("=")
    assert not allowed(key, value)
