"""The grammar of a git folder: every file that git keeps there, what may be in it, and who may change it
(gitrepository-layout(5)).

RULES is the table. A rule is: where, which kind, who may change it while a sandbox runs, what becomes of it otherwise,
and the function that judges its content. What no rule names is set aside. So a file that a later git makes is set aside
until it stands here, and a danger that nobody has thought of is none.

Parts of a pattern: a name; `*` is one name of any form; `**` is any number of names; `{oid}`, `{oid2}`, `{rest}` are an
object id and the two parts it is kept by; `{tmp}` is a name that git gives to a file it has not finished. `X.lock`
stands beside every file X.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from omac.domain.git import config_allowlist, index, operations, refs
from omac.domain.git.folder import ADMIN, WHOLE

FILE, FOLDER = "file", "folder"
AGENT, HOST, NOBODY = "agent", "host", "nobody"
SET_ASIDE, RESTORE, REPORT = "set aside", "restore", "report"

TEXT_BYTES_MAX = 1 << 20
LIST_BYTES_MAX = 64 << 20  # of refs, and of their logs


class Place:
    """What a judge asks about the folder that a file lies in; paths as git reads them there."""

    oid_bytes = index.SHA1_BYTES

    def holds(self, path: str, *, beside: str = "") -> bool:
        """Return whether a path leads into the project, as git follows it; relative: to the git folder, or to
        `beside` in it."""
        raise NotImplementedError

    def worktree_holds(self, path: str) -> bool:
        """Return whether a path that is relative to the worktree stays in it, as git follows it."""
        raise NotImplementedError

    def is_common(self, path: str) -> bool:
        """Return whether a path leads to the common folder of this admin folder."""
        raise NotImplementedError


Judge = Callable[[bytes, bytes, Place], str]
Mend = Callable[[bytes, bytes, Place], bytes]


class Rule:
    """One line of the table; `judge` None: any content. `named` judges the path below the git folder."""

    __slots__ = ("bytes_max", "judge", "kind", "mend", "named", "otherwise", "path", "writer")

    def __init__(
        self,
        path: str,
        judge: Judge | None = None,
        writer: str = AGENT,
        otherwise: str = SET_ASIDE,
        *,
        kind: str = FILE,
        bytes_max: int = TEXT_BYTES_MAX,
        mend: Mend | None = None,
        named: Callable[[str], str] | None = None,
    ) -> None:
        self.path = path
        self.kind = kind
        self.judge = judge
        self.writer = writer
        self.otherwise = otherwise
        self.bytes_max = bytes_max
        self.mend = mend
        self.named = named


def _plain(judge: Callable[[bytes], str]) -> Judge:
    return lambda content, _before, _place: judge(content)


def _changing(judge: Callable[[bytes, bytes], str]) -> Judge:
    return lambda content, before, _place: judge(content, before)


def _config(content: bytes, before: bytes, place: Place) -> str:
    keys = [key for key in config_allowlist.problems(content, before) if key != "core.worktree"]
    worktree = config_allowlist.worktree_of(content)
    if worktree and worktree != config_allowlist.worktree_of(before) and not place.holds(worktree):
        keys.append("core.worktree, outside the project")
    return f"sets {', '.join(key[:100] for key in keys[:5])}" if keys else ""


def _without_problems(content: bytes, before: bytes, place: Place) -> bytes:
    """The settings that are allowed, and those that were there."""
    from omac.domain.git.config import parse, render

    try:
        had = set(parse(before.decode(errors="surrogateescape")))
        kept = []
        for key, value in parse(content.decode(errors="surrogateescape")):
            leads = key == "core.worktree" and place.holds(value)
            if (key, value) in had or leads or config_allowlist.allowed(key, value):
                kept.append((key, value))
        return render(kept).encode(errors="surrogateescape")
    except ValueError:
        return before


def _index(content: bytes, _before: bytes, place: Place) -> str:
    return index.index_problem(content, place.oid_bytes)


def _own_common(content: bytes, _before: bytes, _place: Place) -> str:
    return "" if content.strip() == b"." else "takes the settings from elsewhere"


def _commondir(content: bytes, _before: bytes, place: Place) -> str:
    path = content.rstrip(b"\r\n").decode(errors="surrogateescape")
    return "" if "\n" not in path and place.is_common(path) else "takes the settings from elsewhere"


def _gitdir(content: bytes, before: bytes, place: Place) -> str:
    path = content.rstrip(b"\r\n").decode(errors="surrogateescape")
    fine = "\n" not in path and path.endswith("/.git") and place.holds(path)
    return "" if fine or content == before else "names a worktree outside the project"


def _alternates(content: bytes, before: bytes, place: Place) -> str:
    lines = [line for line in content.split(b"\n") if line and not line.startswith(b"#")]
    had = set(before.split(b"\n"))
    for line in lines:
        path = line.decode(errors="surrogateescape")
        if line not in had and not (path.endswith("/objects") and place.holds(path, beside="objects")):
            return f"takes objects from {path[:200]!r}"
    return ""


def _conflicts(content: bytes, before: bytes, place: Place) -> str:
    if problem := operations.conflicts_problem(content, before):
        return problem
    for path in operations.conflict_paths(content):
        if not place.worktree_holds(path.decode(errors="surrogateescape")):
            return "names a file outside the worktree"
    return ""


def _todo_without_commands(content: bytes, before: bytes, _place: Place) -> bytes:
    return operations.without_commands(content, before)


def _ref_path(path: str) -> str:
    name = path.removeprefix("logs/")
    return "" if name == "HEAD" or refs.is_ref_name(name) else "is not the name of a ref"


def _ref_folder(path: str) -> str:
    return "" if refs.is_ref_name(f"refs/{path}/x") else "is not the name of a ref's folder"


_head, _ref, _oid, _oids = (
    _plain(judge) for judge in (refs.head_problem, refs.ref_problem, refs.oid_problem, refs.oids_problem)
)
_log = _plain(refs.log_problem)
_todo, _strategy, _strategy_options, _author, _signing = (
    _changing(judge)
    for judge in (
        operations.todo_problem,
        operations.strategy_problem,
        operations.strategy_options_problem,
        operations.author_problem,
        operations.signing_problem,
    )
)
_name, _names, _number = (
    _changing(judge) for judge in (operations.name_problem, operations.names_problem, operations.number_problem)
)


def _texts(folder: str, names: str, judge: Judge | None = None) -> list[Rule]:
    return [Rule(f"{folder}{name}", judge) for name in names.split()]


# What each worktree has of its own: in the git folder of the main one, in an admin folder for a linked one.
_OF_A_WORKTREE = [
    Rule("HEAD", _head),
    Rule("index", _index, bytes_max=index.BYTES_MAX),
    Rule("sharedindex.{oid}", _index, bytes_max=index.BYTES_MAX),
    Rule("index.stash.{number}", _index, bytes_max=index.BYTES_MAX),
    Rule("next-index-{number}"),
    *_texts("", "COMMIT_EDITMSG MERGE_MSG SQUASH_MSG TAG_EDITMSG EDIT_DESCRIPTION MERGE_MODE ADD_EDIT.patch"),
    *_texts("", "addp-hunk-edit.diff BISECT_LOG BISECT_RUN BISECT_ANCESTORS_OK BISECT_FIRST_PARENT BISECT_RESET_KEEP"),
    *_texts("", "ORIG_HEAD AUTO_MERGE MERGE_AUTOSTASH NOTES_MERGE_PARTIAL BISECT_EXPECTED_REV", _oid),
    *_texts("", "CHERRY_PICK_HEAD REVERT_HEAD REBASE_HEAD BISECT_HEAD NOTES_MERGE_REF", _ref),
    *_texts("", "MERGE_HEAD", _oids),
    Rule("FETCH_HEAD", _plain(refs.fetched_problem), bytes_max=LIST_BYTES_MAX),
    Rule("MERGE_RR", _conflicts),
    Rule("BISECT_TERMS", _changing(operations.terms_problem)),
    Rule("BISECT_NAMES", _changing(operations.quoted_problem)),
    Rule("BISECT_START", _name),
    Rule("NOTES_MERGE_WORKTREE/{oid}"),
    Rule("info", kind=FOLDER),
    Rule("info/sparse-checkout"),
    Rule("refs", kind=FOLDER),
    Rule("refs/**", _ref, named=_ref_path),
    Rule("logs", kind=FOLDER),
    Rule("logs/**", _log, bytes_max=LIST_BYTES_MAX, named=_ref_path),
    Rule("config.worktree", _config, NOBODY, RESTORE, mend=_without_problems),
    Rule("modules", kind=FOLDER),
    Rule("rebase-merge", kind=FOLDER),
    *(
        Rule(f"rebase-merge/{name}", _todo, bytes_max=operations.TODO_BYTES_MAX, mend=_todo_without_commands)
        for name in ("git-rebase-todo", "git-rebase-todo.backup")
    ),
    *_texts("rebase-merge/", "done dropped amend-type author-name patch message message-squash message-fixup quiet"),
    *_texts("rebase-merge/", "interactive verbose signoff force-rebase drop_redundant_commits"),
    *_texts("rebase-merge/", "keep_redundant_commits cdate_is_adate ignore_date no-reschedule-failed-exec"),
    *_texts("rebase-merge/", "reschedule-failed-exec current-fixups allow_rerere_autoupdate"),
    *_texts("rebase-merge/", "onto orig-head stopped-sha squash-onto amend autostash head", _name),
    *_texts("rebase-merge/", "head-name rewritten-list rewritten-pending refs-to-delete update-refs", _names),
    *_texts("rebase-merge/", "msgnum end", _number),
    Rule("rebase-merge/strategy", _strategy),
    Rule("rebase-merge/strategy_opts", _strategy_options),
    Rule("rebase-merge/author-script", _author),
    Rule("rebase-merge/gpg_sign_opt", _signing),
    Rule("rebase-apply", kind=FOLDER),
    Rule("rebase-apply/git-rebase-todo", _todo, bytes_max=operations.TODO_BYTES_MAX, mend=_todo_without_commands),
    Rule("rebase-apply/{number}"),
    *_texts("rebase-apply/", "abort-safety final-commit info keep msg msg-clean messageid no-message-id patch quiet"),
    *_texts(
        "rebase-apply/", "rebasing applying scissors sign threeway utf8 dirtyindex quoted-cr empty original-commit"
    ),
    *_texts("rebase-apply/", "onto orig-head head-name autostash stopped-sha", _name),
    *_texts("rebase-apply/", "rewritten rewritten-list", _names),
    *_texts("rebase-apply/", "next last", _number),
    Rule("rebase-apply/apply-opt", _changing(operations.apply_problem)),
    Rule("rebase-apply/strategy", _strategy),
    Rule("rebase-apply/strategy_opts", _strategy_options),
    Rule("rebase-apply/author-script", _author),
    Rule("rebase-apply/gpg_sign_opt", _signing),
    Rule("sequencer", kind=FOLDER),
    Rule("sequencer/todo", _todo, bytes_max=operations.TODO_BYTES_MAX, mend=_todo_without_commands),
    Rule("sequencer/opts", _changing(operations.options_problem)),
    *_texts("sequencer/", "head abort-safety", _name),
]
_OF_OBJECTS = [
    Rule("objects", kind=FOLDER),
    Rule("objects/{oid2}", kind=FOLDER),
    Rule("objects/{oid2}/{rest}"),
    Rule("objects/{oid2}/{tmp}"),
    Rule("objects/{tmp}", kind=FOLDER),  # objects of a push or a fetch that was cut off
    Rule("objects/{tmp}/{oid2}/{rest}"),
    Rule("objects/{tmp}/{oid2}/{tmp}"),
    Rule("objects/{tmp}/pack/{pack}"),
    Rule("objects/{tmp}/pack/{tmp}"),
    Rule("objects/{tmp}/info/alternates", _alternates),
    Rule("objects/pack", kind=FOLDER),
    Rule("objects/pack/{pack}"),
    Rule("objects/pack/{tmp}"),
    Rule("objects/pack/multi-pack-index"),
    Rule("objects/pack/multi-pack-index-{oid}.{map}"),
    Rule("objects/pack/multi-pack-index.d/multi-pack-index-chain", _oids),
    Rule("objects/pack/multi-pack-index.d/multi-pack-index-{oid}.{map}"),
    Rule("objects/info", kind=FOLDER),
    *_texts("objects/info/", "packs commit-graph"),
    Rule("objects/info/{tmp}"),
    Rule("objects/info/commit-graphs/commit-graph-chain", _oids),
    Rule("objects/info/commit-graphs/graph-{oid}.graph"),
    Rule("objects/info/commit-graphs/{tmp}"),
    Rule("objects/info/alternates", _alternates, NOBODY, RESTORE),
    Rule("objects/info/http-alternates", _alternates, NOBODY, RESTORE),
    Rule("objects/loose-object-idx"),
]
_OF_A_REPOSITORY = [
    Rule("config", _config, NOBODY, RESTORE, mend=_without_problems),
    Rule("commondir", _own_common, NOBODY, RESTORE),
    Rule("packed-refs", _plain(refs.packed_problem), bytes_max=LIST_BYTES_MAX),
    Rule("packed-refs.new"),
    Rule("refs/replace", kind=FOLDER),
    Rule("refs/replace/*", _ref, NOBODY, RESTORE),
    Rule("shallow", _oids, AGENT, REPORT),
    Rule("info/exclude"),
    Rule("info/refs"),
    Rule("info/attributes", None, NOBODY, RESTORE),
    Rule("info/grafts", None, NOBODY, RESTORE),
    Rule("hooks", kind=FOLDER),
    Rule("hooks/{sample}"),
    Rule("hooks/*", None, NOBODY, RESTORE),
    Rule("branches", kind=FOLDER),
    Rule("branches/*", None, NOBODY, RESTORE),
    Rule("remotes", kind=FOLDER),
    Rule("remotes/*", None, NOBODY, RESTORE),
    *_texts("", "description gc.log gc.pid gitk.cache"),
    Rule("worktrees", kind=FOLDER),
    Rule("rr-cache/{oid}/{image}"),
    Rule("lfs/**"),
    Rule("annex/**"),
    Rule("reftable/tables.list"),
    Rule("reftable/{table}"),
    *_OF_OBJECTS,
]
_OF_AN_ADMIN_FOLDER = [
    Rule("commondir", _commondir, NOBODY, RESTORE),
    Rule("gitdir", _gitdir, HOST, RESTORE),
    Rule("locked"),
    Rule("{omac}/**"),
]
RULES: dict[str, tuple[Rule, ...]] = {
    WHOLE: (*_OF_A_WORKTREE, *_OF_A_REPOSITORY),
    ADMIN: (*_OF_A_WORKTREE, *_OF_AN_ADMIN_FOLDER),
}

_OID = "[0-9a-f]{40}(?:[0-9a-f]{24})?"
_PARTS = {
    "{oid}": _OID,
    "{oid2}": "[0-9a-f]{2}",
    "{rest}": "[0-9a-f]{38}(?:[0-9a-f]{24})?",
    "{number}": "[0-9]+",
    "{pack}": rf"pack-{_OID}\.(?:pack|idx|rev|bitmap|mtimes|keep|promisor)",
    "{map}": "(?:bitmap|rev|midx)",
    "{tmp}": r"\.?(?:tmp|incoming)[-_][A-Za-z0-9_.-]+",
    "{sample}": r"[a-z-]+\.sample",
    "{image}": r"(?:preimage|postimage|thisimage)(?:\.[0-9]+)?",
    "{table}": r"0x[0-9a-f]+-0x[0-9a-f]+-[0-9a-f]+\.(?:ref|log)",
    "{omac}": "omac-refs-[0-9]+",
}


class Node:
    """A place in a git folder: what it may be, and what may be in it."""

    __slots__ = ("below", "names", "patterns", "rule")

    def __init__(self) -> None:
        self.rule: Rule | None = None  # of a file; a folder has none of its own
        self.names: dict[str, Node] = {}
        self.patterns: list[_Pattern] = []
        self.below: Node | None = None  # for every name, at any depth

    @property
    def is_folder(self) -> bool:
        """Whether a folder may be here."""
        return self.rule is None or self.below is self

    @property
    def is_file(self) -> bool:
        """Whether a file may be here."""
        return self.rule is not None

    def child(self, name: str) -> Node | None:
        """Return the place of a name in this folder; None: the grammar has none."""
        known = self.names.get(name)
        if known is not None:
            return known
        for pattern in self.patterns:
            if pattern.matches(name):
                return pattern.node
        if self.below is not None:
            return _LOCK if name.endswith(".lock") else self.below
        known = self.child(name[:-5]) if name.endswith(".lock") else None
        return _LOCK if known is not None and known.is_file else None


class _Pattern:
    """Names that a regular expression matches, compiled when it is first needed, and their place."""

    __slots__ = ("_compiled", "node", "text")

    def __init__(self, text: str, node: Node) -> None:
        self.text = text
        self.node = node
        self._compiled: re.Pattern[str] | None = None

    def matches(self, name: str) -> bool:
        if self._compiled is None:
            self._compiled = re.compile(self.text, re.DOTALL)
        return self._compiled.fullmatch(name) is not None


_LOCK = Node()
_LOCK.rule = Rule("lock")


def _compiled(rules: tuple[Rule, ...]) -> Node:
    root = Node()
    for rule in rules:
        node = root
        parts = rule.path.split("/")
        for part in parts:
            if part == "**":
                if node.below is None:
                    node.below = Node()
                    node.below.below = node.below
                node = node.below
            else:
                node = _at(node, part)
        if rule.kind == FILE:
            node.rule = rule
    return root


def _at(node: Node, part: str) -> Node:
    """The place of one part of a pattern, made where it is missing."""
    if part != "*" and "{" not in part:
        return node.names.setdefault(part, Node())
    text = ".+" if part == "*" else part.replace(".", r"\.")
    for name, expression in _PARTS.items():
        text = text.replace(name, expression)
    for pattern in node.patterns:
        if pattern.text == text:
            return pattern.node
    node.patterns.append(_Pattern(text, Node()))
    return node.patterns[-1].node


GRAMMAR: dict[str, Node] = {role: _compiled(rules) for role, rules in RULES.items()}
