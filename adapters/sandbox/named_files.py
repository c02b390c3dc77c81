"""Files of a project that its settings name, such as hooks, status lines and servers of agents, and those that a
person's start-up files name. Programs run or obey these by themselves, whatever they are called.

The settings are not parsed, which would take a launch longer than all the rest: each word of theirs counts that is the
path of a file.
"""

from __future__ import annotations

import os
from itertools import islice

from omac.adapters.files import bounded
from omac.domain.harness.table import PROJECT_VARIABLES
from omac.domain.kernel.paths import below

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SETTINGS_BYTES_MAX = 64 << 10  # of a file: an agent may have left any
FILES_MAX = 200
WORDS_MAX = 20_000  # of all that one program reads: an agent makes as many as it likes
OF_A_PERSON = {  # in the home, by who reads it
    "a shell": ".bash_aliases .bash_login .bash_profile .bashrc .config/fish/config.fish .profile .zlogin .zprofile"
    " .zshenv .zshrc",
    "an editor": ".config/nvim/init.lua .config/nvim/init.vim .emacs .emacs.d/init.el .vimrc",
    "ssh": ".ssh/config",
    "tmux": ".config/tmux/tmux.conf .tmux.conf",
}
_HOOKS = (
    "commit-msg", "post-checkout", "post-commit", "post-merge", "post-rewrite", "pre-commit", "pre-push",
    "prepare-commit-msg",
)  # fmt: skip
OF_A_PROJECT = {  # in the project, by who reads it
    "direnv": ".envrc",
    "mise": ".config/mise.toml .config/mise/config.toml .mise.toml mise.toml mise/config.toml",
    "an editor": ".devcontainer.json .devcontainer/devcontainer.json .vscode/tasks.json .zed/tasks.json",
    "a hook of git": " ".join((
        ".lefthook.yml .pre-commit-config.yaml lefthook.yaml lefthook.yml prek.toml",
        *(f"{folder}/{name}" for folder in (".git/hooks", ".githooks", ".husky") for name in _HOOKS),
    )),
}  # fmt: skip
# those that stand for the project
_VARIABLES = (*PROJECT_VARIABLES, "PWD", "workspaceFolder", "containerWorkspaceFolder", "config_root")
_ADDING = ("PATH_add ", "path_add PATH ", "_.path")
_INSTALLED = frozenset(("node_modules", ".venv", "venv"))  # packages that are installed are not reported
_BETWEEN_WORDS = str.maketrans(dict.fromkeys("\"'`,;:=|&()<>[]{}\n\t\r", " "))


def named_files(settings: Iterable[str], project: str, home: str, *, is_relative: bool) -> list[str]:
    """Return the files of a canonical project that settings files name by a path, with no blank in it; `is_relative`:
    it may begin at the project, and has a slash or a dot then. So are the folders that they put into PATH, there or
    not."""
    words: dict[str, bool] = {}  # whether it is one of PATH's
    for file in settings:
        try:
            content = bounded.read(file, SETTINGS_BYTES_MAX, follow=True).decode(errors="replace")
        except OSError:
            continue  # there is none, or it is too long
        words |= dict.fromkeys(_words(content, project, home), False)
        words |= dict.fromkeys(_words(" ".join(_into_path(content)), project, home), True)
    found: dict[str, None] = {}
    for word, is_of_path in islice(words.items(), WORDS_MAX):
        if not (word.startswith(("/", "~/")) or (is_relative and (is_of_path or "/" in word or "." in word))):
            continue
        path = f"{home}{word[1:]}" if word.startswith("~/") else os.path.join(project, word)
        if not (is_of_path or os.path.isfile(path)):
            continue
        path = os.path.normpath(path)
        is_left_out = is_of_path and not _INSTALLED.isdisjoint(path.split("/"))
        if len(found) < FILES_MAX and path != project and below(path, project) and not is_left_out:
            found[path] = None
    return list(found)


def _into_path(text: str) -> Iterator[str]:
    """Yield what the lines of a text put into PATH, as a shell, direnv or mise does."""
    for line in text.splitlines():
        value = f" {line}".partition(" PATH=")[2].split(maxsplit=1)
        yield from value[:1]
        for mark in _ADDING:
            yield line.partition(mark)[2]


def _words(text: str, project: str, home: str) -> list[str]:
    text = text.replace('\\"', "")  # in JSON: "\"$DIR\"/hook.sh"
    for name, value in (*((name, project) for name in _VARIABLES), ("HOME", home)):
        text = text.replace(f"${{{name}}}", value).replace(f"${name}", value).replace(f"{{{{{name}}}}}", value)
    return text.translate(_BETWEEN_WORDS).split()
