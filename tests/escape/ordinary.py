"""Ordinary work of developers: scripts that have the same result with omac as without."""

from typing import NamedTuple


class Work(NamedTuple):
    """A piece of work. `does`: the session's script. `before`: the person's script before it. `needs`: programs."""

    does: str
    before: str = ":"
    layout: str = "plain"
    needs: tuple[str, ...] = ()


_CLASH = (
    "git checkout -q -b side; echo side > README; git commit -qam side; echo side2 > f2; git commit -qam side2;"
    " git checkout -q -; echo main > README; git commit -qam main; "
)
_EDIT_FIRST = "GIT_SEQUENCE_EDITOR='sed -i 1s/^pick/edit/' git rebase -q -i HEAD~3; "
_OWN_EXEC = "GIT_SEQUENCE_EDITOR='sed -i -e 1s/^pick/edit/ -e \"2i exec touch ran\"' git rebase -q -i HEAD~3; "
_CLONE = "git clone -q . dep; cd dep; "

WORK = {
    # files, commits, branches
    "edit and commit": Work("echo a > a; git add a; git commit -qm a; echo b >> a; git commit -qam b; git mv a c; git rm -q f2; git commit -qm c"),
    "amend": Work("echo a > a; git add a; git commit -qm a; echo b > a; git commit -qa --amend -m b; git commit -q --amend --no-edit"),
    "a commit message in an editor that gives up": Work("echo a > a; git add a; GIT_EDITOR=false git commit -v || true"),
    "fix up and squash": Work("echo a > README; git commit -qa --fixup HEAD~1; git rebase -q -i --autosquash HEAD~3"),
    "a branch with slashes": Work("git checkout -q -b feature/deep/er; git commit -q --allow-empty -m x; git checkout -q -b 'user@x-1.0'; git checkout -q -b 'grün'"),
    "a branch that becomes a folder": Work("git branch a; git branch -D a; git branch a/b; git branch -D a/b; git branch a"),
    "a detached HEAD": Work("git checkout -q --detach HEAD~1; git commit -q --allow-empty -m loose"),
    "a branch without history": Work("git switch -q --orphan new; echo x > x; git add x; git commit -qm new"),
    "branches forced and deleted": Work("git branch a HEAD~1; git branch -f a HEAD; git branch b; git branch -d b; git update-ref refs/heads/c HEAD~2"),
    "reset and reflog": Work("git reset -q --hard HEAD~1; git reset -q --soft HEAD~1; git reflog -3; git reset -q --hard ORIG_HEAD; git reflog expire --expire=now --all"),
    "staged in parts": Work("echo x >> README; echo y >> f2; printf 'y\\nn\\n' | git add -p > /dev/null; git diff --cached --stat"),
    "entries without content": Work("echo x > new; git add -N new; git update-index --assume-unchanged f2; git update-index --skip-worktree f3"),
    "names of files": Work("for n in 'a b' 'ü' 'a:b' '-x' 'x~1' .gitkeep .github '$(x)'; do echo x > \"./$n\"; done; git add -A; git commit -qm names"),
    "modes and links": Work("chmod +x README; ln -s README link; ln -s /etc/passwd far; git add -A; git commit -qm modes"),
    "ignored files": Work("echo '*.o' > .gitignore; echo tmp >> .git/info/exclude; touch x.o tmp y; git clean -qfd; git add -A; git commit -qm i"),
    "attributes": Work("echo '*.txt text eol=lf' > .gitattributes; echo x > x.txt; git add -A; git commit -qm t"),
    "an archive, a bundle and patches": Work("git archive -o a.tar HEAD; git bundle create -q b.bundle --all; git format-patch -q -2; git describe --always; git shortlog -s HEAD; git grep -q hi; git blame README > /dev/null"),
    "patches applied": Work("git format-patch -q -1; git reset -q --hard HEAD~1; git am -q 0001-c4.patch; git apply -R 0001-c4.patch"),
    "patches that do not apply, left open": Work("echo z > f4; git format-patch -q -1 --stdout > p; git commit -qam z; git am -q p || true"),
    "export and import": Work("git fast-export --all | sed s,refs/heads/main,refs/heads/copy, | git fast-import --quiet"),
    "history rewritten by a filter": Work("FILTER_BRANCH_SQUELCH_WARNING=1 git filter-branch -f --msg-filter 'sed s/^/x/' HEAD~2..HEAD > /dev/null 2>&1"),
    # stash, bisect, notes, tags
    "stash and pop": Work("echo x >> README; echo y > new; git stash -q -u; git stash list; git stash pop -q"),
    "a stash left": Work("echo x >> README; git add README; echo y >> README; git stash -q -m kept; echo z > f2; git stash -q; git stash drop -q stash@{1}"),
    "a stash as a branch": Work("echo x >> README; git stash -q; git stash branch again"),
    "a bisect run": Work("git bisect start HEAD HEAD~3; git bisect run test ! -e f4; git bisect reset"),
    "a bisect left open": Work("git bisect start HEAD HEAD~3; git bisect good"),
    "a bisect with words of one's own": Work("git bisect start --term-new broken --term-old fine -- src f2 f3; git bisect broken; git bisect fine HEAD~3"),
    "notes": Work("git notes add -m one; git notes --ref review/x add -m two HEAD~1; git notes append -m three"),
    "tags": Work("git tag light; git tag -a -m m v1; git tag -a -m m rel/2; git tag -d light; git tag -f v1 HEAD~1"),
    "symbolic refs": Work("git symbolic-ref refs/heads/alias refs/heads/main; git update-ref refs/remotes/origin/main HEAD; git symbolic-ref refs/remotes/origin/HEAD refs/remotes/origin/main"),
    # merges and sequences
    "merges": Work(_CLASH + "git merge -q -X ours --no-edit side; git checkout -q -b t HEAD~1; git merge -q -s ours -m s side; git merge -q --no-ff --no-edit main~1"),
    "a merge with a conflict, left open": Work(_CLASH + "git merge side || true"),
    "a merge that was resolved": Work(_CLASH + "git merge side || echo both > README; git add README; git commit -q --no-edit"),
    "a merge squashed, left open": Work(_CLASH + "git reset -q --hard HEAD~1; git merge -q --squash side"),
    "a merge of three": Work("for b in x y z; do git checkout -q -b $b main; echo $b > $b; git add $b; git commit -qm $b; done; git checkout -q main; git merge -q -m three x y z"),
    "a merge with stash": Work(_CLASH + "echo dirty >> f3; git merge --autostash side || true"),
    "a cherry-pick with a conflict, left open": Work(_CLASH + "git cherry-pick -x main..side || true"),
    "a cherry-pick continued": Work(_CLASH + "git cherry-pick main..side || echo both > README; git add README; git cherry-pick --continue"),
    "a cherry-pick with options, left open": Work(_CLASH + "git cherry-pick -X patience --signoff -n side~1 side || true"),
    "a revert with a conflict, left open": Work("echo x > README; git commit -qam x; echo y > README; git commit -qam y; git revert --no-edit HEAD~1 HEAD~3 || true"),
    "a rebase": Work(_CLASH + "git rebase -q side~1 || git rebase --abort; git rebase -q --onto HEAD~2 HEAD~1"),
    "a rebase with a conflict, left open": Work(_CLASH + "git rebase side || true"),
    "a rebase with a conflict, by patches, left open": Work(_CLASH + "git rebase --apply side || true"),
    "a rebase with stash, left open": Work(_CLASH + "echo dirty >> f3; git rebase --autostash side || true"),
    "a rebase stopped to edit, left open": Work(_EDIT_FIRST + "echo x > x; git add x; git commit -qm x"),
    "a rebase of merges, left open": Work(_CLASH + "git merge -q -X ours --no-edit side; GIT_SEQUENCE_EDITOR='sed -i 1ibreak' git rebase -q -i -r HEAD~2"),
    "a rebase that moves branches, left open": Work("git branch mid HEAD~1; GIT_SEQUENCE_EDITOR='sed -i 1s/^pick/edit/' git rebase -q -i --update-refs HEAD~3"),
    "a rebase with commands, begun and ended inside": Work("git rebase -q -i --exec 'test -e README' HEAD~3"),
    "a rebase with a command of the person's, gone on with inside": Work("git rebase --continue", before=_OWN_EXEC),
    "a rebase with a command of the person's, left to the person": Work("echo x > x; git add x; git commit -qm x", before=_OWN_EXEC),
    "recorded resolutions": Work(_CLASH + "git merge side || echo both > README; git commit -qam m; git reset -q --hard HEAD~1; git merge side || true",
                                 before="git config rerere.enabled true"),
    "recorded resolutions and a split index": Work(_CLASH + "git merge side || true",
                                                   before="git config rerere.enabled true; git update-index --split-index"),
    # upkeep
    "gc": Work("git gc -q; git commit -q --allow-empty -m x; git gc -q --aggressive --prune=now"),
    "repack and prune": Work("git repack -adq --write-bitmap-index; git commit -q --allow-empty -m x; git repack -dq; git prune; git prune-packed -q; touch $(ls .git/objects/pack/*.pack | head -1 | sed s/pack$/keep/)"),
    "packed refs": Work("git branch a; git pack-refs --all; git branch -D a; git branch b; git tag c; git pack-refs"),
    "maintenance": Work("git repack -dq; git commit -q --allow-empty -m x; git repack -dq; git maintenance run --task=gc --task=loose-objects --task=incremental-repack --task=pack-refs --quiet"),
    "indexes of packs": Work("git repack -dq; git commit -q --allow-empty -m x; git repack -dq; git multi-pack-index write --bitmap"),
    "a graph of the host's": Work("git commit -q --allow-empty -m x; git gc -q; git fetch -q; git maintenance run --auto; git log --graph", before="git commit-graph write --reachable --split --changed-paths; git config fetch.writeCommitGraph true"),
    "an index in version 4": Work("git update-index --index-version 4; echo x > x; git add x; git commit -qm x"),
    "a split index": Work("git update-index --split-index; echo x > x; git add x; git commit -qm x; echo y > y; git add y"),
    "an index with an untracked cache": Work("git update-index --untracked-cache --force-untracked-cache; git status; touch y; git status"),
    "a lock of an interrupted command": Work("touch .git/index.lock .git/refs/heads/x.lock; mkdir -p .git/objects/pack; touch .git/objects/pack/tmp_pack_Ab12cd; git log -1"),
    # fetching
    "fetch and pull": Work("git fetch -q ./other main; git log -1 FETCH_HEAD; git pull -q --no-rebase --allow-unrelated-histories --no-edit ./other main",
                           before="git clone -q ../victim other"),
    "a remote of the person's": Work("git fetch -q; git commit -q --allow-empty -m x; git pull -q --rebase; git rev-list --count @{u}..HEAD", layout="clone"),
    "push into a bare one in the project": Work("git init -q --bare b.git; git push -q b.git main:main; git clone -q b.git c; git -C c commit -q --allow-empty -m x; git -C c push -q"),
    # repositories in the project
    "a nested clone": Work("git clone -q . third_party/x"),
    "a nested clone with work in it": Work(_CLONE + "git checkout -q -b b; echo x > x; git add x; git commit -qm x; git config user.name Y; git remote add up $W; git fetch -q up; git branch -q -u up/main; git branch -m c"),
    "a nested clone with harmless settings": Work(_CLONE + "git config lfs.repositoryformatversion 0; git config init.defaultBranch x; git config alias.st status; git config pull.rebase true; git config merge.conflictStyle diff3; git config blame.ignoreRevsFile .x; git config receive.denyCurrentBranch updateInstead; git config maintenance.gc.enabled true; git config difftool.prompt false; git config remote.origin.gh-resolved base"),
    "a nested clone with a cone of files": Work(_CLONE + "git sparse-checkout set src; git sparse-checkout add x; git status"),
    "a nested clone with a sparse index": Work(_CLONE + "git sparse-checkout set --cone --sparse-index src; git status; git sparse-checkout disable"),
    "a nested clone with a submodule": Work(_CLONE + "git -c protocol.file.allow=always submodule --quiet add ../other lib; git commit -qm sub; git submodule update --init",
        before="git clone -q ../victim other",
),
    "a nested clone with worktrees": Work(_CLONE + "git worktree add -q ../wt -b w; git -C ../wt commit -q --allow-empty -m w; git worktree lock ../wt; git worktree list"),
    "a nested clone with settings by worktree": Work(_CLONE + "git config extensions.worktreeConfig true; git worktree add -q ../wt; git -C ../wt config --worktree core.abbrev 10"),
    "a shallow clone": Work("git clone -q --depth 2 file://$W x; git -C x fetch -q --deepen 1; git -C x log --oneline"),
    "a mirror, and one by reference": Work("git clone -q --mirror . m.git; git clone -q --reference . . r; git clone -q --shared . s; git clone -q --no-hardlinks . n"),
    "a repository in a subfolder": Work("git init -q sub; cd sub; echo x > x; git add x; git commit -qm x; git gc -q"),
    "a repository of SHA-256": Work("git init -q --object-format=sha256 sub; cd sub; echo x > x; git add x; git commit -qm x; git gc -q; git tag -a -m m v; git stash list"),
    "a nested clone that was there": Work("cd dep; echo x > x; git add x; git commit -qm x; git fetch -q; git status", layout="nested"),
    "a nested worktree that was there": Work("cd .worktrees/feat; echo x > x; git add x; git commit -qm x; git merge -q main", layout="nested"),
    "a partial clone that was there": Work("cd part; cat README; git log -p --stat > /dev/null; git fetch -q",
                                           before="git clone -q ../victim other; git -C other config uploadpack.allowFilter true; git clone -q"
                                                  " --filter=blob:none --no-checkout file://$W/other part; git -C part checkout -q HEAD README"),
    # submodules and worktrees of the project
    "work in a submodule": Work("cd lib; git checkout -q -b b; echo x > x; git add x; git commit -qm x; cd ..; git add lib; git commit -qm lib; git submodule status; git submodule update", layout="submodule"),
    "a submodule in a submodule": Work("git submodule update -q --init --recursive; git -C lib/inner commit -q --allow-empty -m x; git submodule foreach -q --recursive git status",
                                       before="git clone -q ../victim ../store; (cd ../store; git submodule --quiet add ../victim inner; git commit -qm i); git submodule --quiet add ../store lib; git -C lib submodule --quiet update --init; git commit -qm s"),
    "a worktree added and removed": Work("git worktree add -q wt -b w; git -C wt commit -q --allow-empty -m w; git worktree remove wt; git worktree prune"),
    "a worktree added": Work("git worktree add -q wt -b w; echo x > wt/x; git -C wt add x; git -C wt commit -qm x; git -C wt stash list"),
    "a worktree added, detached and locked": Work("git worktree add -q --detach --lock wt HEAD~1; git worktree list"),
    "a worktree whose folder is gone": Work("git worktree add -q wt -b w; rm -rf wt; git worktree prune; git branch -D w"),
    # tools
    "hooks of the project": Work("echo x > x; git add x; git commit -qm x; git checkout -q -b b",
                                 before="mkdir .husky; printf '#!/bin/sh\\necho checked\\n' > .husky/pre-commit; chmod +x .husky/pre-commit; git add .; git commit -qm h; git config core.hooksPath .husky"),
    "hooks of the project, in a split index": Work("echo more >> README; git add README; git commit -qm x; echo more >> README; git add README",
                                                   before="mkdir .husky; printf '#!/bin/sh\\ntrue\\n' > .husky/pre-commit; chmod +x .husky/pre-commit; git add .; git commit -qm h; git config core.hooksPath .husky; git config core.splitIndex true; git config splitIndex.maxPercentChange 100; git update-index --split-index"),
    "hooks in .git": Work("echo x > x; git add x; git commit -qm x",
                          before="printf '#!/bin/sh\\ntest -e README\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit; echo 'repos: []' > .pre-commit-config.yaml; git add .; git commit -qm p"),
    "hooks of the person's": Work("echo x > x; git add x; git commit -qm x",
                                  before="mkdir ../hooks; printf '#!/bin/sh\\nexit 0\\n' > ../hooks/pre-commit; chmod +x ../hooks/pre-commit; git config --global core.hooksPath $H/hooks"),
    "settings of the person's, in the project": Work("git commit -q --allow-empty -m x; git config user.name; git log -1 --format=%an",
                                                     before="git config user.name Local; git config user.email l@x; git config alias.up '!git fetch'; git config core.pager cat; git config diff.x.textconv cat"),
    "direnv": Work("echo x > x; git add x; git commit -qm x; cat .envrc || true", before="echo 'export A=1' > .envrc; git add .; git commit -qm e"),
    "lfs": Work("echo large > b.bin; git add b.bin; git commit -qm b; git lfs ls-files; git lfs status; echo larger > b.bin; git commit -qam c; git checkout -q HEAD~1 b.bin",
                before="git lfs install --local > /dev/null; git lfs track '*.bin' > /dev/null; echo l > a.bin; git add .; git commit -qm l", needs=("git-lfs",)),
    "lfs in a nested clone": Work(_CLONE + "echo m > a.bin; git commit -qam m; cp a.bin b.bin; git add .; git commit -qm n",
                                  before="git lfs install --skip-repo > /dev/null; git lfs track '*.bin' > /dev/null; echo l > a.bin; git add .; git commit -qm l",
                                  needs=("git-lfs",)),
    "packages from git": Work("mkdir -p node_modules/.bin node_modules/p; echo '{}' > node_modules/p/package.json; git clone -q . node_modules/dep; ln -s ../dep/README node_modules/.bin/dep; git status"),
    "a virtual environment": Work("python3 -m venv --without-pip .venv; echo .venv > .gitignore; git add .; git commit -qm v"),
    "a server's socket and a FIFO": Work("python3 -Ic 'import socket; socket.socket(1).bind(\"dev.sock\")'; mkfifo pipe; git status"),
}  # fmt: skip

_LINKED = (
    "edit and commit", "amend", "a branch with slashes", "a detached HEAD", "branches forced and deleted",
    "reset and reflog", "staged in parts", "patches that do not apply, left open", "stash and pop", "a stash left",
    "a bisect left open", "notes", "tags", "a merge with a conflict, left open", "a cherry-pick with a conflict, left open",
    "a revert with a conflict, left open", "a rebase with a conflict, left open", "a rebase stopped to edit, left open",
    "a rebase of merges, left open", "a rebase with a command of the person's, left to the person", "gc", "packed refs",
    "a split index", "a nested clone with work in it", "a repository of SHA-256",
)  # fmt: skip
_EXPIRES_NOTHING = "git config gc.reflogExpire never; git config gc.reflogExpireUnreachable never"  # as gc inside
WORK |= {f"{name}, in a linked worktree": WORK[name]._replace(layout="linked") for name in _LINKED}
WORK["gc, in a linked worktree"] = WORK["gc, in a linked worktree"]._replace(before=_EXPIRES_NOTHING)

# What there is to see afterwards, for each repository of the project.
LOOK = r"""
for git in $(find . -name .git -prune -print -o -name '?*.git' -prune | sort) $(find . -name '?*.git' -type d | sort); do
    case $git in */.git | .git) place=${git%.git} ;; *) place=$git ;; esac
    (cd "./$place" && echo "== $place" && d=$(git rev-parse --git-dir) &&
     for line in 'rev-parse HEAD' 'symbolic-ref -q HEAD' 'for-each-ref --format=%(refname)%(objectname)%(symref)' \
        'ls-files --stage --sparse -t' 'status --porcelain=v2 --branch --ignore-submodules=none' 'stash list' \
        'log --all --format=%H%s' 'fsck --no-progress' 'reflog --all'
     do echo "-- $line"; git $line 2>&1; done
     echo "-- settings"; git config --local --list | sort
     echo "-- files"; find "$d" -path "$d/objects" -prune -o -path "$d/modules" -prune -o -type f -print | sort |
        sed 's/sharedindex\.[0-9a-f]*/sharedindex/'
     for f in $(find "$d/rebase-merge" "$d/rebase-apply" "$d/sequencer" -type f 2>/dev/null | sort); do
        echo "-- $f"; cat "$f"; done)
done
echo "== tree"; find . -path '*/.git/*' -prune -o -type f ! -path '*.git/*' ! -name index -exec sha256sum {} + | sort -k 2
find . -path '*/.git/*' -prune -o -type l -printf '%p -> %l\n' | sort
"""
