"""Operations that were begun and not finished: rebase, cherry-pick, revert, am, bisect, and conflicts that git records.

`git rebase --continue` and its like carry out what these files say, so each may say only what git itself writes there.
Each function takes what is in a file, and what was there when the sandbox was launched, and returns why git would not
have written it, or an empty text.

Rules

0. No pattern backtracks over what it has passed: a file of a megabyte is judged in milliseconds, whatever is in it.
1. A step is one of git's own. A command (`exec`) counts only if the file had it at launch.
2. A strategy is one of git's own: of another name, git runs the program `git-merge-NAME`, also one in the worktree.
3. Options for a strategy, for `git apply` and for signing are those that name no program and no place.
4. The name of a ref or a commit is no option: `git bisect reset` runs `git checkout NAME` for the one in BISECT_START.
"""

from __future__ import annotations

from omac.domain.git.config import parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

STRATEGIES = (b"ort", b"recursive", b"resolve", b"octopus", b"ours", b"subtree")
_REF = rb"(?!-)[^\s\x00-\x20~^:?*\[\\\x7f]+"
_COMMIT = rb"(?:[0-9a-f]{4,64}|%s)" % _REF
_STEP = (
    rb"\s*(?:"
    rb"(?:pick|p|edit|e|reword|r|squash|s|drop|d|revert)\s+(?:%s)(?:\s[^\n]*)?"
    rb"|(?:fixup|f)\s+(?:-[cC]\s+)?(?:%s)(?:\s[^\n]*)?"
    rb"|(?:label|l|reset|t)\s+(?:%s|\[new root\])(?:\s[^\n]*)?"
    rb"|(?:merge|m)\s+(?:-[cC]\s+%s\s+)?(?:%s)(?:\s[^\n]*)?"
    rb"|(?:update-ref|u)\s+refs/heads/%s\s*"
    rb"|(?:noop|break|b)\s*"
    rb"|[#;][^\n]*"
    rb"|)" % (_COMMIT, _COMMIT, _COMMIT, _COMMIT, _REF, _REF)
)
_EXEC = rb"(?s)\s*(?:exec|x)(?:\s.*)?"
_AUTHOR = rb"(?:GIT_AUTHOR_(?:NAME|EMAIL|DATE)='(?:[^'\x00]|'\\''|'\\!')*'\n?)*"
_SIGNING = rb"(?:-S|--gpg-sign=|--no-gpg-sign)?[0-9A-Za-z@.+_<> -]*\n?"
_APPLY_WORD = (
    rb"-3|--3way|-[pC]\d+|--whitespace=(?:nowarn|warn|fix|error|error-all|strip)|--ignore-(?:space-change|whitespace)"
    rb"|--keep-cr|--no-keep-cr"
)
_STRATEGY_OPTION = (  # of ort and recursive, but for `subtree=`, which names a place
    rb"ours|theirs|patience|renormalize|no-renormalize|no-renames|subtree|find-renames(?:=\d{1,3}%?)?"
    rb"|rename-threshold=\d{1,3}%?|diff-algorithm=(?:patience|minimal|histogram|myers)"
    rb"|ignore-(?:space-change|all-space|space-at-eol|cr-at-eol)"
)
_STRATEGY_WORD = rb"'?(?:--)?(?:%s)'?" % _STRATEGY_OPTION
_QUOTED = rb"\"(?:[^\"$`\\]|\\n)*\""
_LFS_HOOK = (  # that `git lfs install` writes
    rb"#!/bin/sh\ncommand -v git-lfs >/dev/null 2>&1 \|\| \{ (?:echo|printf) >&2 %s(?: %s)?; exit 2; \}\n"
    rb"git lfs (?:pre-push|post-checkout|post-commit|post-merge) \"\$@\"\n?"
) % (_QUOTED, _QUOTED)
_CONFLICT = rb"(?:[0-9a-f]{40}|[0-9a-f]{64})(?:\.[0-9]{1,4})?\t([^\0]+)"
_BISECT_TERMS = rb"[a-z0-9-]+\n[a-z0-9-]+\n?"
_QUOTED_WORDS = rb"(?:[ \t]*'(?:[^']|'\\''|'\\!')*')*\s*"
_REF_LINE = rb"%s\n?" % _REF
_NAMES_LINE = rb"%s(?: %s)?" % (_REF, _REF)
_OPTIONS = frozenset(
    "no-commit edit allow-empty allow-empty-message drop-redundant-commits keep-redundant-commits signoff record-origin"  # noqa: SIM905
    " allow-ff mainline gpg-sign allow-rerere-auto default-msg-cleanup commit-use-reference strategy"
    " strategy-option".split()
)


def _is(pattern: bytes, text: bytes) -> bool:
    """Return whether a pattern matches a text as a whole."""
    import re  # here: most launches meet no operation, and it takes long to load

    return re.fullmatch(pattern, text) is not None


def _is_command(line: bytes) -> bool:
    return _is(_EXEC, line)


def todo_problem(content: bytes, before: bytes) -> str:
    """A list of steps: `rebase-merge/git-rebase-todo`, `sequencer/todo`."""
    allowed = {line.strip() for line in before.split(b"\n") if _is_command(line)}
    for line in content.split(b"\n"):
        if _is_command(line):
            if line.strip() not in allowed:
                return "would run a command"
        elif not _is(_STEP, line):
            return "has a step that git does not write"
    return ""


def without_commands(content: bytes, before: bytes) -> bytes:
    """Return a list of steps in which each command that was not there at launch is a comment."""
    allowed = {line.strip() for line in before.split(b"\n") if _is_command(line)}
    lines = content.split(b"\n")
    return b"\n".join(b"# " + line if _is_command(line) and line.strip() not in allowed else line for line in lines)


def _only(pattern: bytes, problem: str) -> Callable[[bytes, bytes], str]:
    """A judge of files that hold what a pattern matches, or what they held before, and nothing else."""
    return lambda content, before: "" if content == before or _is(pattern, content) else problem


author_problem = _only(_AUTHOR, "has more than an author")  # of a commit, as assignments of a shell
signing_problem = _only(_SIGNING, "has more than an option for signing")
hook_problem = _only(_LFS_HOOK, "is new or changed")  # those of git-lfs run git-lfs and nothing else
terms_problem = _only(_BISECT_TERMS, "has more than two words")  # `BISECT_TERMS`
quoted_problem = _only(_QUOTED_WORDS, "has more than quoted words")  # `BISECT_NAMES`, quoted for a shell


def strategy_problem(content: bytes, before: bytes) -> str:
    """The name of a merge strategy."""
    return "" if content.strip() in STRATEGIES or content == before else "names a strategy that is not git's own"


def strategy_options_problem(content: bytes, before: bytes) -> str:
    """Options for a strategy, as words of a shell: those of git's own strategies, or what was there."""
    fine = content == before or all(_is(_STRATEGY_WORD, word) for word in content.split())
    return "" if fine else "has other options for a strategy"


def apply_problem(content: bytes, before: bytes) -> str:
    """Options of `git apply`, each quoted for a shell."""
    words = [word.strip(b"'") for word in content.split()]
    return "" if content == before or all(_is(_APPLY_WORD, word) for word in words) else "has other options"


def options_problem(content: bytes, before: bytes) -> str:
    """`sequencer/opts`, in the form of a configuration file."""
    if content == before:
        return ""
    try:
        pairs = parse(content.decode(errors="surrogateescape"))
    except ValueError:
        return "is not a configuration that git reads"
    for key, value in pairs:
        section, _, name = key.partition(".")
        if section != "options" or name not in _OPTIONS:
            return f"sets {key[:100]}"
        if name == "strategy" and value.encode(errors="surrogateescape") not in STRATEGIES:
            return "names a strategy that is not git's own"
        if name == "strategy-option" and not _is(_STRATEGY_OPTION, value.encode(errors="surrogateescape")):
            return "has other options for a strategy"
        if name == "gpg-sign" and not _is(_SIGNING, value.encode(errors="surrogateescape")):
            return "has more than an option for signing"
    return ""


def conflicts_problem(content: bytes, before: bytes) -> str:
    """`MERGE_RR`: conflicts by number, and the file of each; where the files lie is for a judge with a worktree."""
    records = content.split(b"\0")
    fine = content == before or (not records.pop() and all(_is(_CONFLICT, record) for record in records))
    return "" if fine else "is not a record of conflicts that git writes"


def conflict_paths(content: bytes) -> list[bytes]:
    """The paths that `MERGE_RR` names, relative to the worktree."""
    return [record.partition(b"\t")[2] for record in content.split(b"\0") if record]


def name_problem(content: bytes, before: bytes) -> str:
    """A file that holds the name of a ref or of a commit, like `BISECT_START` and `head-name`."""
    fine = _is(_REF_LINE, content) or content.strip() in (b"", b"detached HEAD") or content == before
    return "" if fine else "does not hold a name"


def names_problem(content: bytes, before: bytes) -> str:
    """A file that holds names of refs and object ids, one or two a line, like `rewritten-list`."""
    fine = content == before or all(not line or _is(_NAMES_LINE, line) for line in content.split(b"\n"))
    return "" if fine else "does not hold names alone"


def number_problem(content: bytes, before: bytes) -> str:
    """A file that holds a number, like `msgnum`."""
    return "" if content.strip().isdigit() or content == before else "does not hold a number"
