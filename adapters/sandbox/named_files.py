"""Files of a project that settings of agents name, such as hooks, status lines and servers, and those that a person's
start-up files name. Programs run or obey these by themselves, whatever they are called.

The settings are not parsed, which would take a launch longer than all the rest: each word of theirs counts that is the
path of a file.
"""

from __future__ import annotations

import os

from omac.adapters.files import bounded
from omac.domain.harness.table import PROJECT_VARIABLES
from omac.domain.kernel.paths import below

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

SETTINGS_BYTES_MAX = 64 << 10  # of a file: an agent may have left any
FILES_MAX = 200
OF_A_PERSON = {  # in the home, by who reads it
    "a shell": ".bash_aliases .bash_login .bash_profile .bashrc .config/fish/config.fish .profile .zlogin .zprofile"
    " .zshenv .zshrc",
    "an editor": ".config/nvim/init.lua .config/nvim/init.vim .emacs .emacs.d/init.el .vimrc",
    "ssh": ".ssh/config",
    "tmux": ".config/tmux/tmux.conf .tmux.conf",
}
_VARIABLES = (*PROJECT_VARIABLES, "PWD", "workspaceFolder")  # that stand for the project
_BETWEEN_WORDS = str.maketrans(dict.fromkeys("\"'`,;:=|&()<>[]{}\n\t\r", " "))


def named_files(settings: Iterable[str], project: str, home: str, *, is_relative: bool) -> list[str]:
    """Return the files of a canonical project that settings files name by a path, with no blank in it; `is_relative`:
    it may begin at the project, and has a slash or a dot then."""
    words: dict[str, None] = {}
    for file in settings:
        try:
            content = bounded.read(file, SETTINGS_BYTES_MAX, follow=True)
        except OSError:
            continue  # there is none, or it is too long
        words |= dict.fromkeys(_words(content.decode(errors="replace"), project, home))
    found: dict[str, None] = {}
    for word in words:
        if not (word.startswith(("/", "~/")) or (is_relative and ("/" in word or "." in word))):
            continue
        path = os.path.normpath(f"{home}{word[1:]}" if word.startswith("~/") else os.path.join(project, word))
        if len(found) < FILES_MAX and below(path, project) and os.path.isfile(path):
            found[path] = None
    return list(found)


def _words(text: str, project: str, home: str) -> list[str]:
    text = text.replace('\\"', "")  # in JSON: "\"$DIR\"/hook.sh"
    for name, value in (*((name, project) for name in _VARIABLES), ("HOME", home)):
        text = text.replace(f"${{{name}}}", value).replace(f"${name}", value)
    return text.translate(_BETWEEN_WORDS).split()
