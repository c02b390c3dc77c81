"""adapters/git/inspections.py: an inspection reports changes, sets dangerous files aside and keeps the rest working."""

import os
import stat
import time
from pathlib import Path

import pytest
from adapters.git.boxed import Outcome, act, host, noted, run_inside
from polling import file_times_pass

from adapters.git import layouts
from omac.adapters.git import tracked_files
from omac.adapters.git.inspection import Budget, Exhausted
from omac.adapters.git.layout import GitChoices, lay_out
from omac.domain.git.config import parse


@pytest.fixture
def workdir(tmp_path: Path, home: Path) -> Path:
    return layouts.plain(tmp_path, home)


def _found(outcome: Outcome) -> dict[str, str]:
    """Return, by the name of each path, where its file was moved to, or else the report about it."""
    return {os.path.basename(finding.path): finding.moved or finding.what for finding in outcome.findings}


def test_ordinary_work_is_not_reported(workdir: Path, home: Path) -> None:
    """Commits, files, folders and links in the tree are neither reported nor moved."""
    inside = run_inside(
        workdir, "mkdir d; echo x > d/f; ln -s d/f l; git add .; git commit -q -m x; git gc -q", home=home
    )
    assert inside.status == 0, inside.output
    assert inside.findings == []


def test_a_harmless_clone_stays(workdir: Path, home: Path) -> None:
    """A repository that was cloned into the tree is reported, and works on the host."""
    inside = run_inside(workdir, "git clone -q . n; cd n; git commit -q --allow-empty -m inner", home=home)
    assert _found(inside) == {".git": "is a nested repository that is new"}
    assert "inner" in host("git", "log", "--format=%s", cwd=workdir / "n", home=home)


def test_a_harmless_bare_clone_stays(workdir: Path, home: Path) -> None:
    """A bare repository that was cloned into the tree is reported, and works on the host."""
    inside = run_inside(workdir, "git clone -q --bare . n.git", home=home)
    assert list(_found(inside)) == ["n.git"]
    assert inside.moved() == []
    assert "third" in host("git", "log", "--format=%s", cwd=workdir / "n.git", home=home)


def test_a_partial_clone_is_told_how_to_become_whole(workdir: Path, home: Path) -> None:
    """A promisor remote, which git asks silently, is removed; the report names the command that fetches the rest."""
    host("git", "config", "uploadpack.allowFilter", "true", cwd=workdir, home=home)
    inside = run_inside(workdir, "git clone -q --no-checkout --filter=blob:none file://$PWD n", home=home)
    report = next(finding for finding in inside.findings if finding.path.endswith("n/.git/config"))
    assert "sets remote.origin.promisor" in report.what
    assert "git fetch --refetch" in report.what
    assert "the rest stays" in report.what
    assert host("git", "fsck", cwd=workdir / "n", home=home, check=False) != ""
    host("git", "fetch", "-q", "--refetch", cwd=workdir / "n", home=home)
    assert host("git", "fsck", cwd=workdir / "n", home=home) == ""


def test_a_worktree_made_inside_stays(workdir: Path, home: Path) -> None:
    """`git worktree add` below a plain clone works there and on the host; the next session protects it."""
    inside = run_inside(
        workdir, "git worktree add -q .worktrees/x -b x; cd .worktrees/x; git commit -q --allow-empty -m x", home=home
    )
    assert inside.status == 0, inside.output
    assert inside.moved() == []
    assert "a worktree was added while the program ran" in _found(inside)["x"]
    assert ".git" not in _found(inside), "it is reported once"
    assert host("git", "status", "--short", cwd=workdir / ".worktrees/x", home=home) == ""
    assert f"{workdir}/.worktrees/x/.git" in {
        entry.path for entry in lay_out(str(workdir), GitChoices(), str(home)).entries
    }


def test_a_submodule_added_inside_stays(tmp_path: Path, workdir: Path, home: Path) -> None:
    """The git folder of a submodule is reported, and the host's git uses it after `git submodule init`."""
    host("git", "clone", "-q", "--bare", str(workdir), str(workdir / "library"), cwd=tmp_path, home=home)
    script = "git -c protocol.file.allow=always submodule --quiet add ./library sub; git commit -q -m sub"
    inside = run_inside(workdir, script, home=home)
    assert inside.moved() == []
    assert f"is a new submodule, of {workdir}/sub" in _found(inside)["sub"]
    assert ".git" not in _found(inside), "it is reported once"
    host("git", "submodule", "init", cwd=workdir, home=home)
    assert "sub" in host("git", "submodule", "status", cwd=workdir, home=home)


EVIL = "core.fsmonitor 'touch $CANARY'"
SUBMODULES = {
    "hidden": f"git init -q --bare .git/evil/x; git config -f .git/evil/x/config {EVIL};"
    " git config -f .git/evil/x/config core.bare false; git config -f .git/evil/x/config core.worktree $W/n;"
    " mkdir n; echo gitdir: ../.git/evil/x > n/.git; cd n; echo x > x; git add x",
    "config": f"git -C libs/sub config {EVIL}",
    "config-file": f"git config -f .git/modules/libs/sub/config {EVIL}; git config -f .git/modules/libs/sub/c2 {EVIL};"
    " mv -f .git/modules/libs/sub/c2 .git/modules/libs/sub/config",
    "moved": f"cp -r .git/modules/libs .git/modules/l2; git config -f .git/modules/l2/sub/config {EVIL};"
    " mv .git/modules/libs .git/modules/l3; mv .git/modules/l2 .git/modules/libs",
    "parent": f"mv libs l2; mkdir -p libs/sub; git init -q libs/sub; git -C libs/sub config {EVIL}; "
    f"git -C libs/sub add .",
    "pointer": f"git init -q e; git -C e config {EVIL}; git -C e config core.worktree $W/libs/sub; rm -f libs/sub/.git;"
    " echo gitdir: ../../e/.git > libs/sub/.git",
    "new": f"git init -q --bare .git/modules/evil; git config -f .git/modules/evil/config {EVIL};"
    " git config -f .git/modules/evil/config core.bare false; "
    "git config -f .git/modules/evil/config core.worktree $W/n;"
    " mkdir n; echo gitdir: ../.git/modules/evil > n/.git; cd n; echo x > x; git add x",
    "worktree": f"git worktree add -q n; git config extensions.worktreeConfig true; git -C n config --worktree {EVIL};"
    f" git config -f .git/worktrees/n/config.worktree {EVIL}; rm -rf e; cp -r .git e; git config -f e/config {EVIL};"
    " echo ../../../e > .git/worktrees/n/commondir",
}


@pytest.mark.parametrize("name", SUBMODULES)
@pytest.mark.parametrize("protected", [True, pytest.param(False, marks=pytest.mark.full)])
def test_submodules_and_worktrees(name: str, protected: bool, tmp_path: Path, home: Path) -> None:
    """Programs planted in git folders, pointers and folders around them run on the host only without protection."""
    workdir = layouts.with_submodule(tmp_path, home)
    canary = tmp_path / "canary"
    run_inside(
        workdir,
        SUBMODULES[name],
        home=home,
        swept=protected,
        instead=None if protected else tmp_path,
        environment={"W": str(workdir), "CANARY": str(canary)},
    )
    canary.unlink(missing_ok=True)
    for folder in (workdir, workdir / "libs/sub", workdir / "n"):
        if folder.is_dir():
            host("git", "status", cwd=folder, home=home, check=False, environment={"CANARY": str(canary)})
            host("git", "add", "-A", cwd=folder, home=home, check=False, environment={"CANARY": str(canary)})
    assert canary.exists() is not protected


def test_settings_whose_pin_was_lost(tmp_path: Path, workdir: Path, home: Path) -> None:
    """A dangerous setting is removed, and the file that had it is set aside; harmless settings stay."""
    config = workdir / ".git" / "config"
    before = config.read_bytes()
    layout = lay_out(str(workdir), GitChoices(), str(home))
    record = noted(layout)
    host("git", "config", "pull.rebase", "true", cwd=workdir, home=home)
    assert [finding.moved for finding in act(record, home)] == [""]
    host("git", "config", "core.sshCommand", "evil", cwd=workdir, home=home)
    moved = [finding.moved for finding in act(record, home) if finding.moved]
    assert moved == [f"{home}/state/set-aside/launch/1-config"]
    assert parse(config.read_text()) == [*parse(before.decode()), ("pull.rebase", "true")]
    assert b"evil" in Path(moved[0]).read_bytes()


def test_names_do_not_run_out(workdir: Path, home: Path) -> None:
    """Files of the same name that are set aside get new names, so that earlier ones are kept."""
    moved = []
    for name, editor in (("n", "evil"), ("m", "worse"), ("o", "worst")):
        inside = run_inside(workdir, f"git init -q {name}; git -C {name} config core.editor {editor}", home=home)
        moved += inside.moved()
    assert moved == [f"{home}/state/set-aside/launch/{number}-config" for number in (1, 2, 3)]
    editors = [dict(parse(Path(path).read_text()))["core.editor"] for path in moved]
    assert editors == ["evil", "worse", "worst"]
    assert "editor" not in (workdir / "n/.git/config").read_text()


@pytest.mark.parametrize("script", ["ln -s /etc n/.git", "echo gitdir: /etc > n/.git"])
def test_what_was_put_there_is_not_met_again(script: str, workdir: Path, home: Path) -> None:
    """The text in place of a `.git` that was set aside is no finding of another inspection."""
    layout = lay_out(str(workdir), GitChoices(), str(home))
    record = noted(layout)
    (workdir / "n").mkdir()
    host("sh", "-c", script, cwd=workdir, home=home)
    assert len(act(record, home)) == 1
    assert act(record, home) == []
    assert "set-aside-by-omac" in (workdir / "n/.git").read_text()


def test_what_cannot_be_moved_away(workdir: Path, home: Path) -> None:
    """A file that cannot be moved, as on a full disk, gets a name that git does not obey, and the rest is inspected."""
    layout = lay_out(str(workdir), GitChoices(), str(home))
    record = noted(layout)
    (home / "state").write_text("no folder can be made here")
    script = (
        "git init -q n1; git -C n1 config core.fsmonitor evil; cp /bin/true n1/.git/hooks/post-commit;"
        "mkdir n2; ln -s ../n1/.git n2/.git; ln -s /etc/passwd .git/refs/heads/evil;"
        "git init -q n3; git -C n3 config core.editor evil"
    )
    host("sh", "-c", script, cwd=workdir, home=home)
    messages = {os.path.relpath(finding.path, workdir): finding.what for finding in act(record, home)}
    assert "it is called config.set-aside-by-omac-" in messages["n1/.git/config"]
    assert "it is called post-commit.set-aside-by-omac-" in messages["n1/.git/hooks/post-commit"]
    assert "a symbolic link to '../n1/.git' was removed" in messages["n2/.git"]
    assert "a symbolic link to '/etc/passwd' was removed" in messages[".git/refs/heads/evil"]
    assert "it is called config.set-aside-by-omac-" in messages["n3/.git/config"]
    for name in ("n1", "n3"):
        assert "evil" not in host("git", "config", "-l", cwd=workdir / name, home=home)
    assert not [
        path for path in (workdir / "n1/.git/hooks").iterdir() if os.access(path, os.X_OK) and "omac" in path.name
    ]
    assert host("git", "fsck", cwd=workdir, home=home) == ""


def test_links_among_git_files(workdir: Path, home: Path) -> None:
    """Links and FIFOs among git's files are set aside, and git lists refs and logs without a complaint."""
    script = (
        "ln -s /etc/passwd .git/refs/heads/evil; ln -s /etc/passwd .git/logs/refs/heads/evil; mkfifo .git/MERGE_MSG"
    )
    inside = run_inside(workdir, script, home=home)
    assert len(inside.moved()) == 3
    assert "evil" not in host("git", "for-each-ref", cwd=workdir, home=home)
    assert "warning" not in host("git", "reflog", "--all", cwd=workdir, home=home)
    assert host("git", "fsck", cwd=workdir, home=home) == ""


@pytest.mark.parametrize(
    "name",
    [
        "info/exclude",
        "info/sparse-checkout",
        "MERGE_MSG",
        "SQUASH_MSG",
        "worktrees/w/locked",
        "rebase-merge/done",
    ],
)
def test_a_file_that_git_cannot_hold(workdir: Path, home: Path, name: str) -> None:
    """A file that git reads whole, and that no memory holds, is set aside: the host's git would end at it. What an
    agent wrote otherwise stays, as does what was as large at launch."""
    path = workdir / ".git" / name
    host("git", "worktree", "add", "-q", "../w", cwd=workdir, home=home)
    host("mkdir", "-p", str(path.parent), cwd=workdir, home=home)
    assert run_inside(workdir, f"seq 9999 > .git/{name}", home=home).findings == []
    assert path.exists()
    inside = run_inside(workdir, f"truncate -s 900G .git/{name}", home=home)
    assert len(inside.moved()) == 1, inside.findings
    host("truncate", "-s", "900G", str(path), cwd=workdir, home=home)
    assert run_inside(workdir, "true", home=home).findings == []


def test_unfinished_rebase(workdir: Path, home: Path) -> None:
    """An unfinished rebase without commands is reported and stays; one with commands loses them."""
    inside = run_inside(workdir, "echo clash > t; git add t; git commit -q -m c; git rebase topic", home=home)
    assert list(_found(inside)) == ["rebase-merge"], inside.findings
    assert inside.moved() == []
    host("git", "rebase", "--abort", cwd=workdir, home=home)
    inside = run_inside(workdir, "git rebase -x false HEAD~2", home=home)
    assert len(inside.moved()) == 2  # what is to be done, and its copy
    assert "exec" not in "".join(
        line for line in (workdir / ".git/rebase-merge/git-rebase-todo").read_text().splitlines() if line[0] != "#"
    )


def test_locks_of_a_git_that_was_killed(workdir: Path, home: Path) -> None:
    """A lock that is left keeps the host's git from its work: it is reported, unless it was there at launch, and no
    program need have meant it."""
    host("git", "worktree", "add", "-q", "../w", cwd=workdir, home=home)
    there, new = ("HEAD.lock",), ("index.lock", "gc.pid", "refs/heads/x.lock", "worktrees/w/index.lock")
    host("touch", *(f".git/{name}" for name in there), cwd=workdir, home=home)
    inside = run_inside(workdir, "cd .git; touch " + " ".join(new), home=home)
    locks = {finding.path: finding.what for finding in inside.findings}
    assert locks.keys() == {f"{workdir}/.git/{name}" for name in new}, inside.findings
    assert all(f"was left: rm {path}, unless" in what for path, what in locks.items())
    assert run_inside(workdir, "true", home=home).findings == []


def test_set_user_id(workdir: Path, home: Path) -> None:
    """A new file loses its set-uid and set-gid bits; a file that existed at launch keeps them."""
    (workdir / "old").write_text("")
    (workdir / "old").chmod(0o4755)
    file_times_pass()
    inside = run_inside(workdir, "cp /bin/true new; chmod 6755 new", home=home)
    assert stat.S_IMODE((workdir / "new").stat().st_mode) == 0o755
    assert stat.S_IMODE((workdir / "old").stat().st_mode) == 0o4755
    assert list(_found(inside)) == ["new"]


def test_names_that_begin_like_options(workdir: Path, home: Path) -> None:
    """A new file or folder is reported whose name a command takes for an option where it gets all names of a folder.
    One that existed at launch is not."""
    (workdir / "-old").mkdir()
    file_times_pass()
    option = "--checkpoint-action=exec=sh evil"
    files = f"> '{option}'; > src/-x; > src/a-b; > src/_-; > '+!sh x'; > src/+page.svelte; > src/1+!sh"
    inside = run_inside(workdir, f"mkdir -- -e src a-b +state '+|sh x'; {files}", home=home)
    found = _found(inside)
    assert sorted(found) == sorted(["-e", option, "-x", "+!sh x", "+|sh x"])
    assert "a command that is given * obeys it" in found[option]
    assert "a command that is given * takes its name for an option" in found["-e"]


@pytest.mark.parametrize(
    "path",
    [
        ".envrc",
        ".env",
        ".mcp.json",
        "opencode.json",
        ".vscode/tasks.json",
        ".vscode/settings.json",
        ".idea/workspace.xml",
        ".claude/settings.json",
        ".claude/settings.local.json",
        ".claude/hooks/x.sh",
        ".codex/config.toml",
        ".opencode/plugin/x.ts",
        "deep/er/.cursor/mcp.json",
        ".devcontainer/devcontainer.json",
        ".githooks/pre-commit",
    ],
)
def test_what_other_programs_obey(path: str, workdir: Path, home: Path) -> None:
    """New and changed files that other programs obey are reported where they are; unchanged ones are not."""
    first = run_inside(workdir, f"mkdir -p $(dirname {path}); echo 1 > {path}", home=home)
    assert [finding.path for finding in first.findings] == [f"{workdir}/{path}"]
    file_times_pass()
    assert run_inside(workdir, "echo x > f", home=home).findings == []
    changed = run_inside(workdir, f"echo 2 > {path}", home=home)
    assert [finding.moved for finding in changed.findings] == [""]


def test_the_command_shows_the_difference(workdir: Path, home: Path) -> None:
    """The command shows the change of a file that git knows, even a committed one, and the content of another file."""
    (workdir / "Makefile").write_text("all: before\n")
    host("git", "add", ".", cwd=workdir, home=home)
    host("git", "commit", "-qm", "make", cwd=workdir, home=home)
    host("git", "gc", "-q", cwd=workdir, home=home)
    inside = run_inside(
        workdir, "echo 'all: after' > Makefile; git commit -qam evil; mkdir -p 'a b'; echo x > 'a b/.envrc'", home=home
    )
    outputs = {}
    for finding in inside.findings:
        command = finding.what.partition(": ")[2]
        outputs[os.path.basename(finding.path)] = host("sh", "-c", command, cwd=home, home=home)
    assert "-all: before" in outputs["Makefile"]
    assert "+all: after" in outputs["Makefile"]
    assert outputs[".envrc"] == "x\n"


@pytest.mark.parametrize("digits", [7, 12, 40])
@pytest.mark.parametrize("kind", ["tag", "branch -q"])
def test_a_name_like_an_objects_hides_no_difference(workdir: Path, home: Path, kind: str, digits: int) -> None:
    """The command shows the change whatever names the program gave to its own commits: git prefers a tag or a branch to
    the beginning of an object's name."""
    (workdir / "Makefile").write_text("all: before\n")
    host("git", "add", ".", cwd=workdir, home=home)
    host("git", "commit", "-qm", "make", cwd=workdir, home=home)
    script = f"""
        c=$(git rev-parse HEAD); b=$(git rev-parse HEAD:Makefile)
        echo 'all: after' > Makefile; git commit -qam evil
        for name in $c $b; do
            git update-ref refs/{"tags" if kind == "tag" else "heads"}/$(echo $name | cut -c-{digits}) HEAD
        done
    """
    inside = run_inside(workdir, script, home=home)
    (command,) = [finding.what.partition(": ")[2] for finding in inside.findings if finding.path.endswith("Makefile")]
    assert "-all: before" in host("sh", "-c", command, cwd=home, home=home)


FORGE = """
import os, subprocess, sys, zlib
def run(*words):
    return subprocess.check_output(["git", *words])
oid = run("rev-parse", sys.argv[1]).decode().strip()
kind = run("cat-file", "-t", oid).strip()
open("sub/Makefile", "w").write("all: after\\n")
run("add", "sub/Makefile")
tree = run("write-tree").decode().strip()
run("reset", "-q")
of = {b"blob": tree + ":sub/Makefile", b"tree": tree + sys.argv[1][4:], b"commit": ""}[kind]
if of:
    content = run("cat-file", kind.decode(), of)
else:
    content = b"tree " + tree.encode() + run("cat-file", "commit", oid)[45:]
path = ".git/objects/" + oid[:2] + "/" + oid[2:]
os.unlink(path)
open(path, "wb").write(zlib.compress(kind + b" %d\\0" % len(content) + content))
"""


ENDLESS = """
import os, subprocess, sys, zlib
zeros = bytes(1 << 24)
for name in sys.argv[1:]:
    oid = subprocess.check_output(["git", "rev-parse", "HEAD:" + name]).decode().strip()
    open(name, "w").write("all: evil\\n")
    path = ".git/objects/" + oid[:2] + "/" + oid[2:]
    if name == sys.argv[1]:
        first, packed = path, zlib.compressobj(1)
        os.unlink(path)
        with open(path, "wb") as file:
            file.write(packed.compress(b"blob %d\\0" % (1 << 30)))
            for _ in range(64):
                file.write(packed.compress(zeros))
            file.write(packed.flush())
    else:
        os.unlink(path)
        os.link(first, path)
"""


@pytest.mark.parametrize("forged", ["HEAD", "HEAD:", "HEAD:sub", "HEAD:sub/Makefile"])
def test_an_object_under_anothers_name_hides_no_difference(workdir: Path, home: Path, forged: str) -> None:
    """The command shows the content of a changed file where the program put another commit, folder or file under the
    name that git has for it: git does not compare an object with its name, and would show no difference."""
    (workdir / "sub").mkdir()
    (workdir / "sub" / "Makefile").write_text("all: before\n")
    host("git", "add", ".", cwd=workdir, home=home)
    host("git", "commit", "-qm", "make", cwd=workdir, home=home)
    (workdir / "forge.py").write_text(FORGE)
    inside = run_inside(workdir, f"python3 forge.py {forged}", home=home)
    assert host("git", "diff", "HEAD:sub/Makefile", "--", "sub/Makefile", cwd=workdir, home=home) == ""
    (what,) = [finding.what for finding in inside.findings if finding.path.endswith("Makefile")]
    assert "git's copy of it was changed, too" in what
    assert host("sh", "-c", what.partition(": ")[2], cwd=home, home=home) == "all: after\n"


@pytest.mark.full
def test_objects_without_end_keep_nobody_waiting(workdir: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects that take long to read cost one bounded time for all of them, and their files are reported."""
    names = [f"m{number}/Makefile" for number in range(20)]
    for name in names:
        (workdir / name).parent.mkdir()
        (workdir / name).write_text(f"all: {name}\n")
    host("git", "add", ".", cwd=workdir, home=home)
    host("git", "commit", "-qm", "make", cwd=workdir, home=home)
    (workdir / "forge.py").write_text(ENDLESS)
    inside = run_inside(workdir, f"python3 forge.py {' '.join(names)}", home=home)
    whats = [finding.what for finding in inside.findings if finding.path.endswith("Makefile")]
    assert len(whats) == len(names)
    assert all("cannot be read (git fsck): cat -v " in what for what in whats)
    monkeypatch.setattr(tracked_files, "COMPARED_WITHIN_S", 0.5)
    began = time.monotonic()
    again = run_inside(workdir, f"for name in {' '.join(names)}; do echo >> $name; done", home=home)
    assert time.monotonic() - began < 5, "each object took half a second"
    assert len(again.findings) == len(names)


def test_names_in_an_index_are_no_longer_than_paths(tmp_path: Path) -> None:
    """An index of one object's name, again and again, gives no more names than it has room for: each as long as the
    rest of it would take all memory."""
    (tmp_path / "index").write_bytes(b"DIRC\0\0\0\2" + bytes.fromhex("ab" * 20) * 50_000)
    assert sum(map(len, tracked_files.names_of(str(tmp_path), "ab" * 20))) < 2_000_000


@pytest.mark.parametrize(
    "path",
    [
        ".vscode/notes.md",
        ".env.example",
        "src/env",
        "claude/settings.json",
        "node_modules/x/package.json",
        ".venv/share/jupyter/labextensions/x/package.json",
    ],
)
def test_what_they_do_not_obey(path: str, workdir: Path, home: Path) -> None:
    """Files that only resemble those that other programs obey are not reported."""
    assert run_inside(workdir, f"mkdir -p $(dirname {path}); echo 1 > {path}", home=home).findings == []


def test_hostile_trees(tmp_path: Path, workdir: Path, home: Path) -> None:
    """Deep, locked and looping trees and odd names end in a report, not in an error; nothing outside is touched."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / ".git").mkdir()
    script = r"""
        python3 -c 'import os
for _ in range(600): os.mkdir("d"); os.chdir("d")'
        ln -s / root; ln -s . loop; ln -s ../outside out; mkdir locked; touch locked/x; chmod 0 locked
        mkfifo pipe; touch "$(printf 'new\nline')"; mkdir n n/.git; ln -s loop n/.git/HEAD; mkdir m; mkfifo m/.git
        mkdir o; printf 'gitdir: \000' > o/.git; mkdir p; echo gitdir: /etc > p/.git; mkdir -p q; ln -s / q/.git
    """
    inside = run_inside(workdir, script, home=home)
    reports = _found(inside)
    assert "/set-aside/" in reports["d"]  # what is too deep
    assert "FIFO" in reports["pipe"]
    for name in ("p", "q"):
        assert "fatal" in host("git", "status", cwd=workdir / name, home=home, check=False)
    assert (tmp_path / "outside" / ".git").is_dir()


@pytest.mark.full
def test_speed(workdir: Path, home: Path) -> None:
    """A tree of 10,000 files takes no longer to inspect than to list, with the status of each file."""
    for number in range(10_000):
        folder = workdir / f"d{number // 100}"
        folder.mkdir(exist_ok=True)
        (folder / f"f{number}").touch()
    layout = lay_out(str(workdir), GitChoices(), str(home))
    record = noted(layout)
    took = []
    for _ in range(7):
        began = time.process_time()
        for top, _, names in os.walk(workdir):
            for name in names:
                os.lstat(f"{top}/{name}")
        between = time.process_time()
        assert act(record, home) == []
        took.append((time.process_time() - between) / (between - began))
    assert min(took) < 2  # 0.7


def test_nothing_of_it_is_left(workdir: Path, home: Path) -> None:
    """A second inspection reports nothing about links that the first one set aside."""
    inside = run_inside(workdir, "ln -s /etc/passwd .git/MERGE_MSG; ln -s /etc/passwd .git/refs/heads/evil", home=home)
    assert len(inside.moved()) == 2
    assert run_inside(workdir, "true", home=home).findings == []


class _Spent(Budget):
    """A budget that is spent after some entries, and again after some more."""

    def __init__(self, *counts: int) -> None:
        super().__init__(60.0)
        self._counts = list(counts)

    def spend(self, entries: int = 1) -> None:
        self._counts[0] -= entries
        if self._counts[0] <= 0:
            raise Exhausted

    def renew(self, seconds: float, entries_max: int = 0) -> None:
        self._counts.pop(0)


def _plant(workdir: Path, home: Path, count: int) -> None:
    for number in range(count):
        (workdir / f"r{number}").mkdir()
        host("git", "init", "-q", cwd=workdir / f"r{number}", home=home)
        (workdir / f"r{number}/source.c").touch()
        host("git", "config", "core.fsmonitor", "evil", cwd=workdir / f"r{number}", home=home)


def test_what_takes_too_long(workdir: Path, home: Path) -> None:
    """Repositories that are not judged are set aside, none around them takes their place, and their files stay."""
    layout = lay_out(str(workdir), GitChoices(), str(home))
    record = noted(layout)
    _plant(workdir, home, 6)
    findings = act(record, home, _Spent(120, 100_000))
    assert any("set aside" in finding.what and finding.path == str(workdir) for finding in findings)
    for number in range(6):
        assert (workdir / f"r{number}/source.c").exists()
        setting = host("git", "config", "--get", "core.fsmonitor", cwd=workdir / f"r{number}", home=home, check=False)
        assert "evil" not in setting
        assert str(workdir / ".git") not in host(
            "git", "rev-parse", "--absolute-git-dir", cwd=workdir / f"r{number}", home=home, check=False
        )
    assert host("git", "fsck", cwd=workdir, home=home) == ""


def test_what_takes_even_longer(workdir: Path, home: Path) -> None:
    """Folders that are not even reached in time are set aside as they are."""
    layout = lay_out(str(workdir), GitChoices(), str(home))
    record = noted(layout)
    _plant(workdir, home, 6)
    act(record, home, _Spent(120, 3))
    for number in range(6):
        folder = workdir / f"r{number}"
        assert not folder.exists() or "evil" not in host("git", "config", "-l", cwd=folder, home=home, check=False)
    moved = list((home / "state/set-aside/launch").rglob("source.c"))
    assert len(moved) + sum((workdir / f"r{number}/source.c").exists() for number in range(6)) == 6
