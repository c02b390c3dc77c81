"""Settings of a repository that name no program and no place: what anybody may set without having the host's git run
something, or read, write or connect elsewhere (git-config(1)).

Nor may one hold a text that git expands and then parses: `rebase.instructionFormat`, and `pretty.NAME` that it may
name, write lines of commands. And none may hide files: `status.showUntrackedFiles`.

A setting that is not in the table is not allowed. `core.worktree` is not either: where it leads is for the caller.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from omac.domain.git.config import parse
from omac.domain.git.refspecs import may_fetch, may_push

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

Allowed = Callable[[str], bool]
_BOOLEANS = ("true", "false", "yes", "no", "on", "off", "1", "0", "")


def _boolean(value: str) -> bool:
    return value.lower() in _BOOLEANS


def _one_of(*values: str) -> Allowed:
    return lambda value: value in values


def _matching(pattern: str) -> Allowed:
    return lambda value: re.fullmatch(pattern, value) is not None


_url = _matching(  # "NAME::...", and "NAME://..." of a scheme that is not git's own, has git run git-remote-NAME
    r"(?!.*::)(?!-)(?:(?:https?|ftps?|ssh|git|git\+ssh|ssh\+git|file)://|(?![A-Za-z0-9][A-Za-z0-9+.-]*://))[^\x00-\x1f]*"
)
_word = _matching(r"[A-Za-z0-9][A-Za-z0-9._/+-]*|\.")
_remote = _matching(r"[A-Za-z0-9][A-Za-z0-9._-]*|\.")  # the name of a remote: git takes anything else for a URL
_branch = _matching(r"refs/heads/[^\s:]+")
_ALIAS_COMMANDS = (
    "add|blame|branch|checkout|cherry-pick|commit|describe|diff|log|merge|reflog|reset|restore|rev-parse|shortlog|show"
    "|stash|status|switch|tag|worktree"
)
_ALIAS_OPTIONS = (
    r"-[0-9]+|-n ?[0-9]+|-[abcdmpsuvwADM]{1,3}|--(?:abbrev-commit|all|amend|branch|branches|cached|color|date=[a-z-]+"
    r"|date-order|decorate|first-parent|force-with-lease|graph|hard|soft|mixed|name-only|name-status|no-edit|no-ff"
    r"|no-merges|oneline|patch|pretty=[^-\s][^\s]*|format=[^\s]+|reverse|short|show-current|staged|stat|tags|topo-order"
    r"|word-diff)"
)
_alias = _matching(rf"(?:{_ALIAS_COMMANDS})(?: +(?:{_ALIAS_OPTIONS}|(?:HEAD|@)[~^0-9@{{}}]*|\.|--))*")

_date = _matching(  # no %n: a line of its own, where git writes the date into a list of commands
    r"(?:auto:)?(?:default|human|iso(?:8601)?(?:-strict)?|local|normal|raw|relative|rfc(?:2822)?|short|unix)(?:-local)?"
    r"|format(?:-local)?:(?:[ A-Za-z0-9,./:_+-]|%[aAbBcdDeFHIjmMpSTuUyYzZ])+"
)
# By section; "*." before a name is any subsection. These take any value.
_NAMES = """
add: ignoreerrors
am: keepcr threeway
apply: ignorewhitespace whitespace
author: email name
blame: blankboundary coloring ignorerevsfile markignoredlines markunblamablelines showemail showroot
branch: autosetupmerge autosetuprebase sort *.description *.gh-merge-base *.vscode-merge-base
checkout: defaultremote guess thresholdforparallelism workers
column: branch clean status tag ui
commit: cleanup gpgsign status verbose
committer: email name
core: abbrev autocrlf bare bigfilethreshold checkstat commitgraph compression createobject
  deltabasecachelimit eol filemode fscache hidedotfiles ignorecase logallrefupdates longpaths loosecompression
  maxtreedepth multipackindex notesref packedgitlimit packedgitwindowsize precomposeunicode preloadindex
  quotepath repositoryformatversion safecrlf sparsecheckout sparsecheckoutcone splitindex
  symlinks trustctime untrackedcache usereplacerefs warnambiguousrefs whitespace
diff: algorithm autorefreshindex colormoved colormovedws context dirstat ignoresubmodules indentheuristic
  interhunkcontext mnemonicprefix noprefix relative renamelimit renames statgraphwidth submodule
  suppressblankempty wserrorhighlight
difftool: prompt trustexitcode
extensions: compatobjectformat noop objectformat preciousobjects relativeworktrees worktreeconfig
feature: experimental manyfiles
fetch: fsckobjects negotiationalgorithm output parallel prune prunetags recursesubmodules showforcedupdates
  unpacklimit writecommitgraph
gc: auto autodetach autopacklimit bigpackthreshold cruftpacks logexpiry packrefs pruneexpire reflogexpire
  reflogexpireunreachable rerereresolved rerereunresolved worktreepruneexpire writecommitgraph
grep: column extendedregexp fullname linenumber patterntype threads
gui: geometry wmstate
index: recordendofindexentries recordoffsettable skiphash sparse threads version
init: defaultbranch defaultobjectformat defaultrefformat
interactive: singlekey
lfs: *.access *.locksverify allowincompletepush concurrenttransfers locksverify repositoryformatversion
log: abbrevcommit decorate diffmerges excludedecoration follow graphcolors initialdecorationset showroot
maintenance: *.enabled *.schedule auto autodetach strategy
merge: autostash branchdesc conflictstyle defaulttoupstream directoryrenames ff log renamelimit renames
  renormalize stat suppressdest verbosity verifysignatures
mergetool: hideresolved keepbackup keeptemporaries prompt writetotemp
notes: displayref mergestrategy rewriteref rewritemode
pack: allowpackreuse compression deltacachelimit deltacachesize depth indexversion packsizelimit threads
  usebitmaps usepathwalk usesparse window windowmemory writebitmaphashcache writebitmaplookuptable
  writereverseindex
protocol: version
pull: ff rebase
push: autosetupremote default followtags gpgsign negotiate recursesubmodules useforceifincludes
rebase: abbreviatecommands autosquash autostash forkpoint maxlabellength missingcommitscheck
  rebasemerges reschedulefailedexec stat updaterefs
receive: advertiseatomic advertisepushoptions autogc certnonceslop denycurrentbranch denydeletecurrent
  denydeletes denynonfastforwards fsckobjects keepalive maxinputsize shallowupdate unpacklimit
  updateserverinfo
remote: *.followremotehead *.gh-resolved *.prune *.prunetags *.skipdefaultupdate
  *.skipfetchall *.tagopt pushdefault
rerere: autoupdate enabled
reset: quiet
sparse: expectfilesoutsideofpatterns
stash: showincludeuntracked showpatch showstat
status: aheadbehind branch displaycommentprefix relativepaths renamelimit renames short showstash
  submodulesummary
submodule: *.active *.branch *.fetchrecursesubmodules *.ignore *.shallow active alternateerrorstrategy
  fetchjobs propagatebranches recurse
switch: guess
tag: gpgsign sort
transfer: advertisesid fsckobjects hiderefs unpacklimit
uploadpack: allowanysha1inwant allowfilter allowreachablesha1inwant allowrefinwant allowtipsha1inwant hiderefs
  keepalive
user: email name useconfigonly
versionsort: suffix
worktree: guessremote userelativepaths
"""
_SECTIONS = {
    section: frozenset(names.split())
    for section, _, names in (line.partition(": ") for line in _NAMES.replace("\n  ", " ").strip().splitlines())
}
_PLACES = ("remote.*.pushurl", "remote.*.url", "submodule.*.url")
_NAMES_A_REMOTE = ("branch.*.pushremote", "branch.*.remote", "checkout.defaultremote", "remote.pushdefault")
_COLOR = r"color\.(?:[a-z]+\.)?[a-z]+"
# By whole key, for settings of which only some values are allowed.
_VALUES: dict[str, Allowed] = {
    "blame.date": _date,
    "branch.*.merge": _branch,
    "branch.*.pushremote": _remote,
    "branch.*.rebase": _one_of("true", "false", "merges", "interactive"),
    "branch.*.remote": _remote,
    "core.commentchar": _one_of(*"#;@!$%^&|:", "auto"),  # of a letter, commands of a rebase would be comments
    "core.fsmonitor": _one_of("false", "no", "off", "0", ""),  # else git starts a process that stays
    "core.protecthfs": _one_of("true", "1"),
    "core.protectntfs": _one_of("true", "1"),
    "core.sharedrepository": _one_of("false", "umask", "0", "true", "group", "1", "0640", "0660"),  # not everybody
    "extensions.refstorage": _one_of("files", "reftable"),
    "filter.lfs.clean": _one_of("git-lfs clean -- %f"),
    "filter.lfs.process": _one_of("git-lfs filter-process"),
    "filter.lfs.required": _boolean,
    "filter.lfs.smudge": _one_of("git-lfs smudge -- %f"),
    "format.pretty": _one_of("oneline", "short", "medium", "full", "fuller", "reference"),
    "http.getanyfile": _boolean,
    "http.receivepack": _boolean,
    "http.uploadpack": _boolean,
    "log.date": _date,
    "merge.tool": _one_of("meld", "vimdiff", "nvimdiff", "vscode", "kdiff3", "opendiff", "p4merge"),
    "remote.*.push": may_push,
    "remote.*.pushurl": _url,
    "remote.*.url": _url,
    "submodule.*.update": _one_of("checkout", "rebase", "merge", "none"),
    "submodule.*.url": _url,
}


def worktree_of(content: bytes) -> str:
    """Return what `core.worktree` says, or an empty text."""
    try:
        pairs = dict(parse(content.decode(errors="surrogateescape")))
    except ValueError:
        return ""
    return pairs.get("core.worktree", "")


def allowed(key: str, value: str) -> bool:
    """Return whether a setting names no program and no place; `key` as `config.parse` gives it."""
    general = general_key(key)
    judge = _VALUES.get(key) or _VALUES.get(general)
    if judge is not None:
        return judge(value)
    if general == "remote.*.fetch":
        return may_fetch(key[len("remote.") : -len(".fetch")], value)
    section, _, name = general.partition(".")
    if section == "alias":
        return _alias(value)
    if re.fullmatch(_COLOR, key):
        return True
    if section == "receive" and name.startswith("*.") and key.startswith("receive.fsck."):
        return True
    return name in _SECTIONS.get(section, ())


def leads_out(key: str, value: str, is_ours: Callable[[str], bool]) -> bool:
    """Return whether a remote or a submodule leads to a place on this machine that is not ours: the host's next fetch
    would copy what is there into the project, where the next program reads it."""
    return general_key(key) in _PLACES and is_local(value) and not is_ours(value)


def is_local(url: str) -> bool:
    """Return whether git takes a remote's place for one on this machine (git-clone(1), "Git URLs")."""
    head = url.partition("/")[0]
    return url.startswith("file:") or ":" not in head


def remotes_of(pairs: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Return the remotes that lead anywhere. The name of another one is a place to git: a path below the worktree."""
    return frozenset(key[len("remote.") : -len(".url")] for key, _ in pairs if general_key(key) == "remote.*.url")


def lacks_remote(key: str, value: str, remotes: Collection[str]) -> bool:
    """Return whether a setting is of a remote that is not one of `remotes`, or names one."""
    general = general_key(key)
    if general.startswith("remote.*."):
        return key[len("remote.") : key.rindex(".")] not in remotes
    return general in _NAMES_A_REMOTE and value != "." and value not in remotes


def general_key(key: str) -> str:
    """Return `filter.*.clean` for `filter.lfs.clean`: a key without its subsection."""
    first, last = key.find("."), key.rfind(".")
    return key if first == last else f"{key[:first]}.*{key[last:]}"
