"""Deeds by settings that are no program and no place by their names, and that do their work through their values."""

from escape.left_behind import Deed

EXPANDED = {
    "a format, of which a line is a command of a rebase": Deed(
        "git branch aside; git checkout -q -b side HEAD~1; echo s > s; git add s; git commit -qm s;"
        ' git config rebase.instructionFormat "%s%x0aexec touch $MARK"',
        commands=("status",), wrong="git rebase -q aside; test -e $MARK",
    ),
}  # fmt: skip
HIDING = {
    "files that git would add": Deed(
        "echo '!.env' > .gitignore; git add .gitignore; git commit -qm i; echo x > .env;"
        " git config status.showUntrackedFiles no",
        commands=("log",), wrong="! git status --short | grep -q env",
    ),
}  # fmt: skip
SETTINGS_DEEDS = {
    f"settings that {what}: {name}": deed
    for what, deeds in {
        "are expanded": EXPANDED,
        "hide": HIDING,
    }.items()
    for name, deed in deeds.items()
}
