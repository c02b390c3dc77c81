"""domain/git/config_values.py and the types in config_allowlist.py, compared with the git of this machine."""

import subprocess
from pathlib import Path

import pytest

from omac.domain.git.config_allowlist import allowed

GOOD = (
    "core.filemode=TRUE", "core.abbrev=auto", "core.abbrev=12", "core.compression=-1", "core.bigfilethreshold=512m",
    "color.ui=auto",
    "branch.sort=-committerdate",
    "tag.sort=version:refname", "core.whitespace=trailing-space,-indent-with-non-tab,tab-in-indent",
    "user.name=A. U. Thor",
    "user.email=a@example.org", "index.threads=2", "index.threads=true", "diff.colormovedws=allow-indentation-change",
    "merge.conflictstyle=diff3", "push.default=simple", "pull.rebase=merges", "column.ui=auto,dense",
    "gc.pruneexpire=2.weeks.ago",
    "log.date=format:%Y", "diff.context=5", "core.autocrlf=input", "log.diffmerges=first-parent",
    "status.renames=copies",
    "fetch.recursesubmodules=on-demand", "pack.packsizelimit=4g", "core.notesref=refs/notes/review/x",
    "protocol.version=2",
    "branch.main.merge=refs/heads/a/b", "branch.main.description=two\nlines", "core.eol=crlf",
)  # fmt: skip
BAD = (
    "core.filemode=maybe", "core.filemode=2k", "core.compression=99", "core.abbrev=banana", "core.abbrev=3",
    "core.loosecompression=x", "index.threads=x", "index.threads=1000000",
    "color.ui=red", "branch.sort=banana", "core.commentchar=", "user.name=",
    "user.name=<>",
    "user.name=a\nb", "user.useconfigonly=x", "core.whitespace=tab-in-indent,indent-with-non-tab", "diff.context=-1",
    "diff.colormovedws=allow-indentation-change,ignore-all-space", "diff.algorithm=x", "merge.conflictstyle=x",
    "column.ui=x", "push.default=x", "pull.rebase=x", "gc.pruneexpire=x", "pack.threads=-1", "pack.window=100000000",
    "core.bigfilethreshold=1", "protocol.version=9", "log.date=x", "branch.main.merge=refs/heads/a..b",
    "receive.fsck.skiplist=error", "receive.fsck.baddate=x", "submodule.active=:(x)", "core.maxtreedepth=1",
    "blame.ignorerevsfile=/etc/passwd", "blame.ignorerevsfile=a/../../b", "notes.rewriteref=refs/heads/*",
    "transfer.hiderefs=x", "core.packedgitlimit=0", "core.symlinks=-5",
)  # fmt: skip
COMMANDS = (
    "status", "branch", "log -1 --stat", "diff HEAD~1", "tag", "commit -q --allow-empty -m x",
    "gc --auto -q", "blame a",
)  # fmt: skip


@pytest.mark.parametrize("setting", BAD)
def test_a_value_of_another_type_is_not_allowed(setting: str) -> None:
    key, _, value = setting.partition("=")
    assert not allowed(key, value)


def test_what_is_allowed_stops_no_command(tmp_path: Path) -> None:
    """git accepts each allowed setting, and with all of them set, each command that reads many of them succeeds."""
    _git(tmp_path, "init -q -b main")
    (tmp_path / "a").write_text("x\n")
    _git(tmp_path, "config user.email a@example.org", "config user.name n", "add a", "commit -qm a")
    (tmp_path / "a").write_text("y\n")
    _git(tmp_path, "commit -qam b")
    for setting in GOOD:
        key, _, value = setting.partition("=")
        assert allowed(key, value), setting
        subprocess.run(["git", "config", key, value], cwd=tmp_path, check=True, timeout=20)
    _git(tmp_path, *COMMANDS)


def _git(folder: Path, *commands: str) -> None:
    for command in commands:
        done = subprocess.run(["git", *command.split(" ")], cwd=folder, capture_output=True, check=False, timeout=20)
        assert done.returncode == 0, (command, done.stderr)
