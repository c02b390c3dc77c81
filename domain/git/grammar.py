"""The grammar of a git folder: every file that git keeps there, what may be in it, and who may change it
(gitrepository-layout(5)).

RULES is the table. A rule is: where, which kind, who may change it while a sandbox runs, what becomes of it otherwise,
and which of the judges (judges.py) looks at its content. What no rule names is set aside. So a file that a later git
makes is set aside until it stands here, and a danger that nobody has thought of is none.

Parts of a pattern: a name; `*` is one name of any form; `**` is any number of names; `{oid}`, `{oid2}`, `{rest}` are an
object id and the two parts it is kept by; `{tmp}` is a name that git gives to a file it has not finished. `X.lock`
stands beside every file X. After `**` may stand names in braces that none of these names is: where files may have any
name, no repository may lie.

Every launch needs the table, and seldom a judge, so it is written without the modules that judges need.
"""

from __future__ import annotations

from omac.domain.git.folder import ADMIN, WHOLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

FILE, FOLDER = "file", "folder"
AGENT, HOST, NOBODY = "agent", "host", "nobody"
SET_ASIDE, RESTORE, REPORT = "set aside", "restore", "report"

TEXT_BYTES_MAX = 1 << 20
TODO_BYTES_MAX = 4 << 20
INDEX_BYTES_MAX = 96 << 20
LIST_BYTES_MAX = 64 << 20  # of refs, of their logs, and of texts of any content that git reads whole


class Rule:
    """One line of the table. `judge` is the name of a judge of the content, empty for any content; `named` that of a
    judge of the path below the git folder; `clean_by` that of a function that takes out what may not be there.
    `is_lock`: the file is there while a git works, and keeps others from it."""

    __slots__ = ("bytes_max", "clean_by", "is_lock", "is_open", "judge", "kind", "named", "otherwise", "path", "writer")

    def __init__(
        self,
        path: str,
        judge: str = "",
        writer: str = AGENT,
        otherwise: str = SET_ASIDE,
        *,
        kind: str = FILE,
        bytes_max: int = TEXT_BYTES_MAX,
        clean_by: str = "",
        named: str = "",
        is_lock: bool = False,
    ) -> None:
        self.path = path
        self.kind = kind
        self.judge = judge
        self.writer = writer
        self.is_open = writer == AGENT and not judge  # a regular file there is fine, whatever is in it
        self.otherwise = otherwise
        self.bytes_max = bytes_max
        self.clean_by = clean_by
        self.named = named
        self.is_lock = is_lock


def _texts(folder: str, names: str, judge: str = "") -> list[Rule]:
    return [Rule(f"{folder}{name}", judge) for name in names.split()]


# What each worktree has of its own: in the git folder of the main one, in an admin folder for a linked one.
_OF_A_WORKTREE = [
    Rule("HEAD", "head"),
    Rule("index", "index", bytes_max=INDEX_BYTES_MAX),
    Rule("sharedindex.{oid}", "index", bytes_max=INDEX_BYTES_MAX),
    Rule("index.stash.{number}", "index", bytes_max=INDEX_BYTES_MAX),
    Rule("next-index-{number}"),
    *(Rule(name, "any", bytes_max=LIST_BYTES_MAX) for name in ("MERGE_MSG", "SQUASH_MSG")),
    *_texts("", "COMMIT_EDITMSG TAG_EDITMSG EDIT_DESCRIPTION MERGE_MODE ADD_EDIT.patch"),
    *_texts("", "addp-hunk-edit.diff BISECT_LOG BISECT_RUN BISECT_ANCESTORS_OK BISECT_FIRST_PARENT BISECT_RESET_KEEP"),
    *_texts("", "ORIG_HEAD AUTO_MERGE NOTES_MERGE_PARTIAL BISECT_EXPECTED_REV", "oid"),
    *_texts("", "CHERRY_PICK_HEAD REVERT_HEAD REBASE_HEAD BISECT_HEAD NOTES_MERGE_REF", "ref"),
    *_texts("", "MERGE_HEAD", "oids"),
    Rule("MERGE_AUTOSTASH", "autostash"),
    Rule("FETCH_HEAD", "fetched", bytes_max=LIST_BYTES_MAX),
    Rule("MERGE_RR", "conflicts"),
    Rule("BISECT_TERMS", "terms"),
    Rule("BISECT_NAMES", "quoted"),
    Rule("BISECT_START", "name"),
    Rule("NOTES_MERGE_WORKTREE/{oid}"),
    Rule("info", kind=FOLDER),
    Rule("info/sparse-checkout", "any", bytes_max=LIST_BYTES_MAX),
    Rule("refs", kind=FOLDER),
    Rule("refs/**", "ref", named="ref_path"),
    Rule("logs", kind=FOLDER),
    Rule("logs/**", "log", bytes_max=LIST_BYTES_MAX, named="ref_path"),
    Rule("config.worktree", "config", NOBODY, RESTORE, clean_by="without_problems"),
    Rule("reftable/tables.list", "tables"),
    Rule("reftable/{table}"),
    Rule("modules", kind=FOLDER),
    Rule("rebase-merge", kind=FOLDER),
    *(
        Rule(f"rebase-merge/{name}", "todo", bytes_max=TODO_BYTES_MAX, clean_by="todo_without_commands")
        for name in ("git-rebase-todo", "git-rebase-todo.backup")
    ),
    Rule("rebase-merge/done", "any", bytes_max=TODO_BYTES_MAX),
    *_texts("rebase-merge/", "dropped amend-type author-name patch message message-squash message-fixup quiet"),
    *_texts("rebase-merge/", "interactive verbose signoff force-rebase drop_redundant_commits"),
    *_texts("rebase-merge/", "keep_redundant_commits cdate_is_adate ignore_date no-reschedule-failed-exec"),
    *_texts("rebase-merge/", "reschedule-failed-exec current-fixups allow_rerere_autoupdate"),
    *_texts("rebase-merge/", "onto orig-head stopped-sha squash-onto amend autostash head", "name"),
    *_texts("rebase-merge/", "head-name rewritten-list rewritten-pending refs-to-delete update-refs", "names"),
    *_texts("rebase-merge/", "msgnum end", "number"),
    Rule("rebase-merge/strategy", "strategy"),
    Rule("rebase-merge/strategy_opts", "strategy_options"),
    Rule("rebase-merge/author-script", "author"),
    Rule("rebase-merge/gpg_sign_opt", "signing"),
    Rule("rebase-apply", kind=FOLDER),
    Rule("rebase-apply/git-rebase-todo", "todo", bytes_max=TODO_BYTES_MAX, clean_by="todo_without_commands"),
    Rule("rebase-apply/{number}"),
    Rule("rebase-apply/patch-merge-index", "index", bytes_max=INDEX_BYTES_MAX),
    *_texts("rebase-apply/", "abort-safety final-commit info keep msg msg-clean messageid no-message-id patch quiet"),
    *_texts(
        "rebase-apply/", "rebasing applying scissors sign threeway utf8 dirtyindex quoted-cr empty original-commit"
    ),
    *_texts("rebase-apply/", "onto orig-head head-name autostash stopped-sha", "name"),
    *_texts("rebase-apply/", "rewritten rewritten-list", "names"),
    *_texts("rebase-apply/", "next last", "number"),
    Rule("rebase-apply/apply-opt", "apply"),
    Rule("rebase-apply/strategy", "strategy"),
    Rule("rebase-apply/strategy_opts", "strategy_options"),
    Rule("rebase-apply/author-script", "author"),
    Rule("rebase-apply/gpg_sign_opt", "signing"),
    Rule("sequencer", kind=FOLDER),
    Rule("sequencer/todo", "todo", bytes_max=TODO_BYTES_MAX, clean_by="todo_without_commands"),
    Rule("sequencer/opts", "options"),
    *_texts("sequencer/", "head abort-safety", "name"),
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
    Rule("objects/{tmp}/info/alternates", "alternates"),
    Rule("objects/pack", kind=FOLDER),
    Rule("objects/pack/{pack}"),
    Rule("objects/pack/{tmp}"),
    Rule("objects/pack/multi-pack-index", "pack_names", bytes_max=LIST_BYTES_MAX),
    Rule("objects/pack/multi-pack-index-{oid.map}"),
    Rule("objects/pack/multi-pack-index.d/multi-pack-index-chain", "oids"),
    Rule("objects/pack/multi-pack-index.d/multi-pack-index-{oid.map}", "pack_names", bytes_max=LIST_BYTES_MAX),
    Rule("objects/info", kind=FOLDER),
    Rule("objects/info/packs"),
    Rule("objects/info/{tmp}"),
    Rule("objects/info/commit-graph", "graph", bytes_max=LIST_BYTES_MAX),
    Rule("objects/info/commit-graphs/commit-graph-chain", "graph"),
    Rule("objects/info/commit-graphs/graph-{oid}.graph", "graph", bytes_max=LIST_BYTES_MAX),
    Rule("objects/info/commit-graphs/{tmp}"),
    Rule("objects/info/alternates", "alternates", NOBODY, RESTORE),
    Rule("objects/info/http-alternates", "alternates", NOBODY, RESTORE),
    Rule("objects/loose-object-idx"),
    *(Rule(f"objects/{name}.lock", is_lock=True) for name in ("maintenance", "schedule")),
]
_OF_A_REPOSITORY = [
    Rule("config", "config", NOBODY, RESTORE, clean_by="without_problems"),
    Rule("commondir", "own_common", NOBODY, RESTORE),
    Rule("packed-refs", "packed", bytes_max=LIST_BYTES_MAX),
    Rule("packed-refs.new"),
    Rule("refs/replace", kind=FOLDER),
    Rule("refs/replace/*", "ref", NOBODY, RESTORE),
    Rule("shallow", "oids", AGENT, REPORT),
    Rule("info/exclude", "any", bytes_max=LIST_BYTES_MAX),
    Rule("info/refs"),
    Rule("info/attributes", "empty", NOBODY, RESTORE),
    Rule("info/grafts", "", NOBODY, RESTORE),
    Rule("hooks", kind=FOLDER),
    Rule("hooks/{sample}"),
    Rule("hooks/*", "hook", NOBODY, RESTORE),
    Rule("branches", kind=FOLDER),
    Rule("branches/*", "", NOBODY, RESTORE),
    Rule("remotes", kind=FOLDER),
    Rule("remotes/*", "", NOBODY, RESTORE),
    *_texts("", "description gc.log gitk.cache"),
    Rule("gc.pid", is_lock=True),
    Rule("opencode", "oid"),  # by which OpenCode knows the repository again: its first commit
    Rule("worktrees", kind=FOLDER),
    Rule("rr-cache/{oid}/{image}"),
    Rule("lfs/**{HEAD .git}"),
    Rule("annex/**{HEAD .git}"),
    *_OF_OBJECTS,
]
_OF_AN_ADMIN_FOLDER = [
    Rule("commondir", "commondir", NOBODY, RESTORE),
    Rule("gitdir", "gitdir", HOST, RESTORE),
    Rule("locked", "any"),
    Rule("{omac}/**{objects commondir .git}"),
]
RULES: dict[str, tuple[Rule, ...]] = {
    WHOLE: (*_OF_A_WORKTREE, *_OF_A_REPOSITORY),
    ADMIN: (*_OF_A_WORKTREE, *_OF_AN_ADMIN_FOLDER),
}


class RuleNode:
    """A place in a git folder: what it may be, and what may be in it."""

    __slots__ = ("below", "names", "patterns", "refused", "rule")

    def __init__(self) -> None:
        self.rule: Rule | None = None  # of a file; a folder has none of its own
        self.names: dict[str, RuleNode] = {}
        self.patterns: list[_Pattern] = []
        self.below: RuleNode | None = None  # for every name, at any depth, but those
        self.refused: frozenset[str] = frozenset()

    @property
    def is_folder(self) -> bool:
        """Return whether a folder may be here."""
        return self.rule is None or self.below is self

    @property
    def is_file(self) -> bool:
        """Return whether a file may be here."""
        return self.rule is not None

    def child(self, name: str) -> RuleNode | None:
        """Return the place of a name in this folder; None: the grammar has none."""
        known = self.names.get(name)
        if known is not None:
            return known
        for pattern in self.patterns:
            if pattern.matches(name):
                return pattern.node
        if self.below is not None:
            if name in self.refused or name.lower() in self.refused:
                return None
            return _LOCK if name.endswith(".lock") else self.below
        known = self.child(name[:-5]) if name.endswith(".lock") else None
        return _LOCK if known is not None and known.is_file else None


_HEX = frozenset("0123456789abcdef")
_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
_DIGITS = frozenset("0123456789")
_PACKS = ("pack", "idx", "rev", "bitmap", "mtimes", "keep", "promisor")


def is_oid(text: str) -> bool:
    """Return whether a text is an object id, of SHA-1 or SHA-256."""
    return len(text) in (40, 64) and _HEX.issuperset(text)


def _is_number(text: str) -> bool:
    return text != "" and _DIGITS.issuperset(text)


def _is_unfinished(text: str) -> bool:
    start = text.removeprefix(".").removeprefix("tmp").removeprefix("incoming")
    begins = text.startswith(("tmp", ".tmp", "incoming", ".incoming"))
    return begins and len(start) > 1 and start[0] in "-_" and _NAME.issuperset(start)


def is_pack(text: str) -> bool:
    """Return whether a name is that of a pack, or of what belongs to one."""
    oid, _, end = text.removeprefix("pack-").partition(".")
    return text.startswith("pack-") and is_oid(oid) and end in _PACKS


def _is_map(text: str) -> bool:
    oid, _, end = text.partition(".")
    return is_oid(oid) and end in ("bitmap", "rev", "midx")


def _is_image(text: str) -> bool:
    kind, dot, number = text.partition(".")
    return kind in ("preimage", "postimage", "thisimage") and (not dot or _is_number(number))


def is_table(text: str) -> bool:
    """Return whether a name is that of a table of refs (gitrepository-layout(5), reftable)."""
    name, _, end = text.partition(".")
    parts = name.split("-")
    are_hex = len(parts) == 3 and all(_HEX.issuperset(part.removeprefix("0x")) and part for part in parts)
    return are_hex and parts[0].startswith("0x") and parts[1].startswith("0x") and end in ("ref", "log")


_KINDS: dict[str, Callable[[str], bool]] = {
    "*": lambda _: True,
    "{oid}": is_oid,
    "{oid2}": lambda text: len(text) == 2 and _HEX.issuperset(text),
    "{rest}": lambda text: len(text) in (38, 62) and _HEX.issuperset(text),
    "{number}": _is_number,
    "{pack}": is_pack,
    "{oid.map}": _is_map,
    "{tmp}": _is_unfinished,
    "{sample}": lambda text: text.endswith(".sample") and _NAME.issuperset(text),
    "{image}": _is_image,
    "{table}": is_table,
    "{omac}": lambda text: text.startswith("omac-refs-") and _is_number(text[10:]),
}


class _Pattern:
    """Names that begin and end with certain letters, and have something of a kind between them; and their place."""

    __slots__ = ("_end", "_is_kind", "_start", "matches", "node", "text")

    def __init__(self, text: str) -> None:
        kind = next(kind for kind in _KINDS if kind in text)
        self.text = text
        self._start, _, self._end = text.partition(kind)
        self._is_kind = _KINDS[kind]
        self.matches = self._fits if self._start or self._end else self._is_kind
        self.node = RuleNode()

    def _fits(self, name: str) -> bool:
        start, end = self._start, self._end
        fits = len(name) > len(start) + len(end) and name.startswith(start) and name.endswith(end)
        return fits and self._is_kind(name[len(start) : len(name) - len(end)])


_LOCK = RuleNode()
_LOCK.rule = Rule("lock", is_lock=True)


def _compiled(rules: tuple[Rule, ...]) -> RuleNode:
    root = RuleNode()
    for rule in rules:
        node = root
        parts = rule.path.split("/")
        for part in parts:
            if part.startswith("**"):
                if node.below is None:
                    node.below = RuleNode()
                    node.below.below = node.below
                    node.below.refused = node.refused = frozenset(part[2:].strip("{}").split())
                node = node.below
            else:
                node = _at(node, part)
        if rule.kind == FILE:
            node.rule = rule
    return root


def _at(node: RuleNode, part: str) -> RuleNode:
    """The place of one part of a pattern, made where it is missing."""
    if part != "*" and "{" not in part:
        return node.names.setdefault(part, RuleNode())
    for pattern in node.patterns:
        if pattern.text == part:
            return pattern.node
    node.patterns.append(_Pattern(part))
    return node.patterns[-1].node


class _Grammar(dict[str, RuleNode]):
    """The place that is the top of a git folder, by the folder's role; made when it is first asked for."""

    def __missing__(self, role: str) -> RuleNode:
        self[role] = top = _compiled(RULES[role])
        return top


GRAMMAR = _Grammar()
