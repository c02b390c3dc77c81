"""Settings of a repository that name no program and no place: what anybody may set without having the host's git run
something, or read, write or connect elsewhere (git-config(1)).

A value is of the type that git wants: another one stops its commands. None is a text that git expands and then parses:
`rebase.instructionFormat`, and `pretty.NAME` that it may name, write lines of commands. None may hide files
(`status.showUntrackedFiles`, `diff.ignoreSubmodules`, `diff.relative`, `core.ignoreCase`) or lines (`color.diff.new` of
black on black), show one branch for another without a word (`core.warnAmbiguousRefs`), or have git forget what could be
found again (`gc.pruneExpire` at once, `core.logAllRefUpdates`).

A setting that is not in the table is not allowed. `core.worktree` is not either: where it leads is for the caller.
"""

from __future__ import annotations

from omac.domain.git.config import general_key, parse
from omac.domain.git.config_values import TYPES, between, matching, one_of, word_of
from omac.domain.git.refs import is_remote_name
from omac.domain.git.refspecs import may_fetch, may_push

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

_SCHEMES = ("http", "https", "ftp", "ftps", "ssh", "git", "git+ssh", "ssh+git", "file")
_is_scheme = word_of("+.-")


def _url(value: str) -> bool:
    """Return whether git may be given a URL. Of "NAME::..." and of "NAME://...", where NAME is no scheme of git's own,
    git runs git-remote-NAME."""
    scheme, separator, _ = value.partition("://")
    is_others = separator != "" and scheme != "." and _is_scheme(scheme) and scheme not in _SCHEMES
    return not is_others and not value.startswith("-") and "::" not in value and min(value, default=" ") >= " "


# Of an alias: what reads, since it may stand in the place of one that the user has elsewhere.
_ALIAS_COMMANDS = "blame|branch|describe|diff|log|reflog|rev-parse|shortlog|show|status|tag"
_ALIAS_OPTIONS = (
    r"-[0-9]+|-n ?[0-9]+|-[abpsvw]{1,3}|--(?:abbrev-commit|all|branch|branches|cached|color|date=[a-z-]+|date-order"
    r"|decorate|first-parent|graph|name-only|name-status|no-merges|oneline|patch|pretty=[^-\s][^\s]*|format=[^\s]+"
    r"|reverse|short|show-current|staged|stat|tags|topo-order|word-diff)"
)
_alias = matching(rf"(?:{_ALIAS_COMMANDS})(?: +(?:{_ALIAS_OPTIONS}|(?:HEAD|@)[~^0-9@{{}}]*|\.|--))*")

_sets_all_colors = matching(r"color\.[a-z]+")
_sets_check = matching(r"receive\.fsck\.(?!skiplist)[a-z0-9]+")

# By section; "*." before a name is any subsection. A name alone is a boolean; after "=" stand what values it may have:
# as they are, or, in capitals, by their type (config_values.py).
_NAMES = """
add: ignoreerrors
am: keepcr threeway
apply: ignorewhitespace=no|none|never|false|change whitespace=nowarn|warn|fix|strip|error|error-all
author: email=NAME name=NAME
blame: blankboundary coloring=repeatedLines|highlightRecent|none date=DATE ignorerevsfile=FILE markignoredlines
  markunblamablelines showemail showroot
branch: autosetupmerge=BOOLEAN|always|inherit|simple autosetuprebase=never|local|remote|always sort=SORT
  *.description=TEXT *.gh-merge-base=WORD *.merge=BRANCH *.pushremote=REMOTE
  *.rebase=true|false|merges|interactive *.remote=REMOTE *.vscode-merge-base=WORD
checkout: defaultremote=REMOTE guess thresholdforparallelism=COUNT workers=THREADS
column: branch=COLUMNS clean=COLUMNS status=COLUMNS tag=COLUMNS ui=COLUMNS
commit: cleanup=strip|whitespace|verbatim|scissors|default gpgsign status verbose=BOOLEAN|COUNT
committer: email=NAME name=NAME
core: abbrev=auto|no|off|false|ABBREV autocrlf=BOOLEAN|input bare bigfilethreshold=BIG checkstat=default|minimal
  commentchar=COMMENT commitgraph compression=LEVEL createobject=rename|link deltabasecachelimit=SIZE
  eol=lf|crlf|native filemode fscache fsmonitor=OFF hidedotfiles=BOOLEAN|dotGitOnly ignorecase=OFF
  logallrefupdates=ON|always longpaths loosecompression=LEVEL maxtreedepth=DEPTH multipackindex notesref=NOTES
  packedgitlimit=SIZE packedgitwindowsize=SIZE precomposeunicode preloadindex protecthfs=ON protectntfs=ON quotepath
  repositoryformatversion=0|1 safecrlf=BOOLEAN|warn sharedrepository=SHARED sparsecheckout sparsecheckoutcone
  splitindex symlinks trustctime untrackedcache=BOOLEAN|keep usereplacerefs warnambiguousrefs=ON
  whitespace=WHITESPACE
diff: algorithm=default|myers|minimal|patience|histogram autorefreshindex
  colormoved=BOOLEAN|default|plain|blocks|zebra|dimmed-zebra|dimmed_zebra colormovedws=MOVED context=CONTEXT
  dirstat=DIRSTAT ignoresubmodules=none indentheuristic interhunkcontext=CONTEXT mnemonicprefix
  noprefix renamelimit=COUNT renames=BOOLEAN|copies|copy statgraphwidth=COUNT submodule=short|log|diff
  suppressblankempty wserrorhighlight=WS_ERRORS
difftool: prompt trustexitcode
extensions: compatobjectformat=sha1|sha256 noop objectformat=sha1|sha256 preciousobjects refstorage=files|reftable
  relativeworktrees worktreeconfig
feature: experimental manyfiles
fetch: fsckobjects negotiationalgorithm=consecutive|default|noop|skipping output=full|compact parallel=THREADS prune
  prunetags recursesubmodules=BOOLEAN|on-demand showforcedupdates unpacklimit=COUNT writecommitgraph
filter: lfs.required
format: pretty=oneline|short|medium|full|fuller|reference
gc: auto=COUNT autodetach autopacklimit=COUNT bigpackthreshold=LIMIT cruftpacks logexpiry=EXPIRY
  packrefs=BOOLEAN|notbare pruneexpire=EXPIRY_LATE reflogexpire=EXPIRY_LATE reflogexpireunreachable=EXPIRY_LATE
  rerereresolved=COUNT|EXPIRY rerereunresolved=COUNT|EXPIRY worktreepruneexpire=EXPIRY_LATE writecommitgraph
grep: column extendedregexp fullname linenumber patterntype=default|basic|extended|fixed|perl threads=THREADS
gui: geometry=GEOMETRY wmstate=normal|zoomed
http: getanyfile receivepack uploadpack
index: recordendofindexentries recordoffsettable skiphash sparse threads=BOOLEAN|THREADS version=2|3|4
init: defaultbranch=WORD defaultobjectformat=sha1|sha256 defaultrefformat=files|reftable
interactive: singlekey
lfs: *.access=none|basic|private|negotiate *.locksverify allowincompletepush concurrenttransfers=THREADS locksverify
  repositoryformatversion=COUNT
log: abbrevcommit date=DATE decorate=BOOLEAN|short|full|auto
  diffmerges=off|none|on|m|first-parent|1|separate|combined|c|dense-combined|cc|remerge|r excludedecoration=GLOB
  follow graphcolors=GLOB initialdecorationset=all showroot
maintenance: *.enabled *.schedule=hourly|daily|weekly|none auto autodetach strategy=none|incremental|gc|geometric
merge: autostash branchdesc conflictstyle=merge|diff3|zdiff3 defaulttoupstream directoryrenames=BOOLEAN|conflict
  ff=BOOLEAN|only log=BOOLEAN|COUNT renamelimit=COUNT renames=BOOLEAN|copies|copy renormalize stat
  suppressdest=GLOB tool=meld|vimdiff|nvimdiff|vscode|kdiff3|opendiff|p4merge verbosity=COUNT verifysignatures
mergetool: hideresolved keepbackup keeptemporaries prompt writetotemp
notes: displayref=NOTES_OF mergestrategy=manual|ours|theirs|union|cat_sort_uniq rewriteref=NOTES_OF
  rewritemode=overwrite|concatenate|cat_sort_uniq|ignore
pack: allowpackreuse=BOOLEAN|single|multi compression=LEVEL deltacachelimit=COUNT deltacachesize=COUNT depth=WINDOW
  indexversion=1|2 packsizelimit=LIMIT threads=THREADS usebitmaps usepathwalk usesparse window=WINDOW
  windowmemory=LIMIT writebitmaphashcache writebitmaplookuptable writereverseindex
protocol: version=0|1|2
pull: ff=BOOLEAN|only rebase=BOOLEAN|merges|m|interactive|i
push: autosetupremote default=nothing|current|upstream|tracking|simple|matching followtags gpgsign=BOOLEAN|if-asked
  negotiate recursesubmodules=check|on-demand|only|no useforceifincludes
rebase: abbreviatecommands autosquash autostash forkpoint maxlabellength=COUNT missingcommitscheck=warn|error|ignore
  rebasemerges=BOOLEAN|rebase-cousins|no-rebase-cousins reschedulefailedexec stat updaterefs
receive: advertiseatomic advertisepushoptions autogc certnonceslop=COUNT
  denycurrentbranch=BOOLEAN|refuse|ignore|warn|updateInstead denydeletecurrent=BOOLEAN|refuse|ignore|warn
  denydeletes denynonfastforwards fsckobjects keepalive=COUNT maxinputsize=LIMIT shallowupdate unpacklimit=COUNT
  updateserverinfo
remote: *.followremotehead=create|always|never|warn *.gh-resolved=WORD *.prune *.prunetags *.push=PUSHED
  *.pushurl=URL *.skipdefaultupdate *.skipfetchall *.tagopt=--tags|--no-tags *.url=URL pushdefault=REMOTE
rerere: autoupdate enabled
reset: quiet
sparse: expectfilesoutsideofpatterns
stash: showincludeuntracked showpatch showstat
status: aheadbehind branch displaycommentprefix relativepaths renamelimit=COUNT renames=BOOLEAN|copies|copy short
  showstash submodulesummary=BOOLEAN|COUNT
submodule: *.active *.branch=WORD *.fetchrecursesubmodules=BOOLEAN|on-demand *.ignore=none
  *.shallow *.update=checkout|rebase|merge|none *.url=URL active=WORKTREE_PATHS
  alternateerrorstrategy=die|info|ignore fetchjobs=THREADS propagatebranches recurse
switch: guess
tag: gpgsign sort=SORT
transfer: advertisesid fsckobjects hiderefs=HIDDEN unpacklimit=COUNT
uploadpack: allowanysha1inwant allowfilter allowreachablesha1inwant allowrefinwant allowtipsha1inwant
  hiderefs=HIDDEN keepalive=COUNT
user: email=NAME name=NAME useconfigonly
versionsort: suffix=GLOB
worktree: guessremote userelativepaths
"""
_TYPES = TYPES | {
    "ABBREV": between(4, 64),
    "COMMENT": one_of(*"#;@!$%^&|:", "auto"),  # of a letter, commands of a rebase would be comments
    "DEPTH": between(1024, 4096),
    "GEOMETRY": matching(r"[0-9x+ -]*"),
    "OFF": one_of("false", "no", "off", "0", ""),  # else git starts a process that stays
    "ON": one_of("true", "1"),
    "PUSHED": may_push,
    "REMOTE": word_of("._-"),  # the name of one: git takes anything else for a URL
    "SHARED": one_of("false", "umask", "0", "true", "group", "1", "0640", "0660"),  # not everybody
    "URL": _url,
}
# By section and name: what each value may be.
_BY_TYPE = {
    f"{section}.{name}": (kinds or "BOOLEAN").split("|")
    for section, _, names in (line.partition(": ") for line in _NAMES.replace("\n  ", " ").strip().splitlines())
    for name, _, kinds in (word.partition("=") for word in names.split())
}
# By whole key, for settings that are allowed of one subsection alone.
_OF_ONE = {
    "filter.lfs.clean": "git-lfs clean -- %f",
    "filter.lfs.process": "git-lfs filter-process",
    "filter.lfs.smudge": "git-lfs smudge -- %f",
}
_REMOTE = "remote.*."
_PLACES = ("remote.*.pushurl", "remote.*.url", "submodule.*.url")
_NAMES_A_REMOTE = ("branch.*.pushremote", "branch.*.remote", "checkout.defaultremote", "remote.pushdefault")


def worktree_of(content: bytes) -> str:
    """Return what `core.worktree` says, or an empty text."""
    try:
        pairs = dict(parse(content.decode(errors="surrogateescape")))
    except ValueError:
        return ""
    return pairs.get("core.worktree", "")


def allowed(key: str, value: str) -> bool:
    """Return whether a setting names no program and no place; `key` as `config.parse` gives it."""
    if key in _OF_ONE:
        return value == _OF_ONE[key]
    general = general_key(key)
    if general.startswith(_REMOTE):
        remote = _remote_of(key)
        if general == "remote.*.fetch":
            return may_fetch(remote, value)
        if not is_remote_name(remote):
            return False
    section = general.partition(".")[0]
    if section == "alias":
        return _alias(value)
    if section == "color" and _sets_all_colors(key):
        return value in ("always", "auto", "never") or TYPES["BOOLEAN"](value)
    if section == "receive" and _sets_check(key):
        return value in ("error", "warn", "ignore")
    kinds = _BY_TYPE.get(key) or _BY_TYPE.get(general) or []
    return any(_TYPES[kind](value) if kind in _TYPES else value == kind for kind in kinds)


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
    return frozenset(_remote_of(key) for key, _ in pairs if general_key(key) == "remote.*.url")


def lacks_remote(key: str, value: str, remotes: Collection[str]) -> bool:
    """Return whether a setting is of a remote that is not one of `remotes`, or names one."""
    general = general_key(key)
    if general.startswith(_REMOTE):
        return _remote_of(key) not in remotes
    return general in _NAMES_A_REMOTE and value != "." and value not in remotes


def _remote_of(key: str) -> str:
    return key[len("remote.") : key.rindex(".")]
