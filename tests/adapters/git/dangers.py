"""Names, paths, settings, steps and links that git's own files must not hold, for planting.py.

In a text, {evil} is a command that must never run, {project} a folder, {victim} one outside, {oid} an object's id.
"""

INDEX_NAMES = (  # of entries of an index
    ".git/hooks/pre-commit", ".git/config", ".GIT/config", ".git /config", "git~1/config", ".g\u200cit/x", "../out",
    "a/../../out", "/tmp/out", "link/out", "./x", "", "a//b", ".git", ".gitmodules", ".gitattributes",
    "sub/.git/config", "a\\..\\..\\out", ".git::$INDEX_ALLOCATION/config", "x" * 300, "n", "bare/config",
)  # fmt: skip
TREE_NAMES = (  # of entries of a tree
    ".git", "..", ".GIT", "a/../../out", "git~1", ".gitmodules", "x\\..\\out", ".gitattributes", "link", "link/out",
)  # fmt: skip
NAMES = (  # of files
    "a", "b", "t", "x", "link", "sub", "n", "libs", "HEAD", "config", "objects", "refs", "HEAD.lock", "é", "x\ny",
    "-x",
)  # fmt: skip
REF_NAMES = (
    "refs/heads/x", "refs/heads/main", "refs/heads/-x", "refs/heads/../../config", "refs/replace/{oid}", "refs/stash",
    "refs/heads/a b", "refs/heads/x.lock", "refs/heads/@{-1}", "refs/notes/commits", "refs/bisect/bad", "refs/x\\y",
    "refs/rewritten/onto", "refs/remotes/origin/HEAD", "refs/tags/v1", "refs/heads/$(touch x)", "refs/heads/é",
    "HEAD",
)  # fmt: skip
TARGETS = (  # of links, and of files that lead elsewhere
    "{victim}", "{victim}/file", "{victim}/folder", "{victim}/repository", "{victim}/repository/.git", "{project}",
    ".", "..", "../..", "/dev/null", "/etc/passwd", "nowhere", "evil", "{project}/n/.git", "{victim}/new", "HEAD",
    "objects",
)  # fmt: skip
LEADING = (  # files that lead elsewhere
    "commondir", "gitdir", "objects/info/alternates", "objects/info/http-alternates", "worktrees/x/gitdir",
    "info/grafts", "worktrees/x/commondir", "shallow", "info/attributes", "info/sparse-checkout", "branches/x",
    "remotes/origin",
)  # fmt: skip
WRITTEN = (  # what git writes to
    "logs", "logs/HEAD", "logs/refs", "logs/refs/heads", "logs/refs/heads/main", "logs/refs/stash", "refs/heads",
    "refs/stash", "refs/remotes/origin", "objects", "objects/pack", "objects/info", "objects/00", "COMMIT_EDITMSG",
    "FETCH_HEAD", "ORIG_HEAD", "MERGE_MSG", "gc.log", "gc.pid", "rr-cache", "info", "worktrees", "modules",
    "modules/sub", "rebase-merge", "sequencer", "MERGE_RR", "HEAD", "index", "packed-refs", "config", "hooks",
    "BISECT_LOG", "AUTO_MERGE", "refs/notes", "worktrees/x/refs", "objects/info/commit-graphs", "logs/refs/remotes",
    "refs/tags", "lfs", "reftable", "description", "worktrees/x", "refs/bisect", "refs/remotes",
    "NOTES_MERGE_WORKTREE", "rebase-apply", "info/exclude",
)  # fmt: skip
RUNNING = (  # settings that name a program, or a place outside
    "core.fsmonitor={evil}", "core.fsmonitor={evil}", "core.hooksPath={project}/evil-hooks",
    "include.path={project}/included", "filter.x.clean={evil}", "filter.x.process={evil}", "filter.x.smudge={evil}",
    "diff.external={evil}", "core.pager={evil}", "diff.x.command={evil}", "diff.x.textconv={evil}",
    "core.editor={evil}", "alias.z=!{evil}", "remote.origin.uploadpack={evil}", "core.alternateRefsCommand={evil}",
    "gpg.program={project}/evil\n[commit]gpgsign=true", "remote.origin.url=ext::{evil}",
    "core.worktree={victim}/folder", "core.worktree={victim}/repository", "merge.x.driver={evil} %A",
)  # fmt: skip
SETTINGS = (
    "core.fsmonitor={evil}", "core.fsmonitor=true", "core.hooksPath={project}/evil-hooks",
    "core.hooksPath=../evil-hooks", "core.sshCommand={evil}", "core.editor={evil}", "core.pager={evil}",
    "core.askPass={evil}", "core.gitProxy={evil}", "core.attributesFile={project}/attributes",
    "core.excludesFile={victim}/file", "core.worktree={victim}/folder", "core.worktree=../..", "core.worktree=/",
    "core.bare=false", "core.bare=true", "core.alternateRefsCommand={evil}", "credential.helper=!{evil}",
    "diff.external={evil}", "diff.x.command={evil}", "diff.x.textconv={evil}", "filter.x.clean={evil}",
    "filter.x.smudge={evil}", "filter.x.process={evil}", "filter.x.required=true", "merge.x.driver={evil} %A",
    "gpg.program={project}/evil", "commit.gpgsign=true", "gpg.format=ssh", "tag.gpgsign=true",
    "gpg.ssh.program={project}/evil", "gpg.x509.program={project}/evil", "include.path={project}/included",
    "include.path=../included", "includeIf.gitdir:/**.path={project}/included",
    "includeIf.onbranch:**.path=../included", "alias.status=!{evil}", "alias.z=!{evil}",
    "remote.origin.uploadpack={evil}", "remote.origin.vcs=evil", "remote.origin.url=ext::{evil}",
    "remote.origin.url=-evil", "remote.origin.pushurl=ext::{evil}", "remote.evil.url=ext::{evil}",
    "url.ext::{evil} .insteadOf=/", "url.ext::.insteadOf=file", "protocol.ext.allow=always", "protocol.allow=always",
    "submodule.sub.update=!{evil}", "submodule.libs/sub.update=!{evil}", "submodule.sub.url=ext::{evil}",
    "submodule.recurse=true", "sequence.editor={evil}", "interactive.diffFilter={evil}", "pager.status={evil}",
    "uploadpack.packObjectsHook={evil}", "extensions.partialClone=origin", "remote.origin.promisor=true",
    "extensions.worktreeConfig=true", "extensions.refStorage=reftable", "extensions.refStorage=files",
    "extensions.objectFormat=sha256", "extensions.compatObjectFormat=sha256", "core.repositoryFormatVersion=1",
    "core.repositoryFormatVersion=0", "trailer.x.command={evil}", "trailer.x.cmd={evil}",
    "gc.recentObjectsHook={evil}", "hook.x.command={evil}", "hook.x.event=pre-commit",
    "hook.y.event=reference-transaction", "hook.y.command={evil}", "fsck.skipList={victim}/file",
    "blame.ignoreRevsFile={victim}/file", "commit.template={victim}/file", "mailmap.file={victim}/file",
    "core.sharedRepository=0777", "core.splitIndex=true", "core.untrackedCache=true", "index.version=4",
    "gc.pruneExpire=now", "gc.worktreePruneExpire=now", "gc.reflogExpire=now", "gc.auto=1",
    "http.proxy=http://127.0.0.1:9/", "http.cookieFile={victim}/file", "http.saveCookies=true", "ssh.variant=simple",
    "branch.main.remote=ext::{evil}", "branch.main.remote={victim}/repository", "branch.main.merge=refs/heads/x",
    "branch.main.mergeOptions=-s evil", "branch.main.rebase=merges", "remote.origin.fetch=+refs/*:refs/*",
    "remote.pushDefault=ext::{evil}", "log.showSignature=true", "attr.tree=HEAD", "core.createObject=link",
    "core.protectNTFS=false", "core.protectHFS=false", "core.symlinks=false", "core.ignoreCase=true",
    "bundle.heuristic=x", "fetch.bundleURI={victim}/file", "remote.origin.followRemoteHEAD=always",
    "rerere.enabled=true", "rerere.autoUpdate=true", "merge.tool=evil", "mergetool.evil.cmd={evil}",
    "difftool.evil.cmd={evil}", "diff.tool=evil", "browser.x.cmd={evil}", "pull.twohead=evil", "pull.octopus=evil",
    "core.preferSymlinkRefs=true", "maintenance.strategy=incremental", "fetch.recurseSubmodules=true",
    "push.recurseSubmodules=check", "status.submoduleSummary=true", "diff.submodule=log",
    "core.notesRef=refs/notes/../../x", "core.logAllRefUpdates=always", "receive.procReceiveRefs=refs",
    "sendemail.x=y",
)  # fmt: skip
STEPS = (  # of a rebase
    "exec {evil}", "x {evil}", "pick {oid} x", "merge -c {oid} -- evil", "merge {oid}", "label onto",
    "reset [new root]", "reset ../../x", "update-ref refs/heads/../../x", "update-ref refs/heads/x",
    "label ../../../x", "fixup -c {oid}", "break", "noop", "drop {oid}", "edit {oid}", "squash {oid}",
    "reset {oid} -s evil", "pick HEAD~1 x\nexec {evil}", "p --upload-pack=x", "revert {oid}", "\texec\t{evil}", "# x",
    "pick {oid}\rexec {evil}", "exec\x0b{evil}", "x\x0c{evil}", "pick {oid} \0exec x",
)  # fmt: skip
OWN = (  # what git itself may be asked for
    "commit -q --allow-empty -m x", "stash -q", "branch -f x HEAD", "gc -q", "pack-refs --all", "switch -q -c y",
    "worktree add -q w HEAD", "rebase -q -i --root", "cherry-pick topic", "merge -q topic",
    "bisect start HEAD HEAD~2", "update-index --split-index", "update-index --index-version 4",
    "sparse-checkout set a", "update-index --untracked-cache", "clone -q . n", "clone -q --bare . n.git", "init -q n",
    "submodule add -q ./n sub", "tag -a -m x x", "repack -adq -m", "commit-graph write --reachable",
    "reset -q --soft HEAD~1", "rm -q -r --cached .", "add -A", "notes add -m x",
)  # fmt: skip
HOOKS = (
    "pre-commit", "post-checkout", "post-merge", "post-commit", "pre-auto-gc", "post-index-change",
    "reference-transaction", "fsmonitor-watchman", "prepare-commit-msg", "commit-msg", "post-rewrite", "pre-rebase",
    "applypatch-msg", "post-applypatch",
)  # fmt: skip
NESTED = (  # folders for nested repositories
    "n", "a1/b/c", "libs", ".worktrees/q", "n/m", "libs/sub", "sub", ".git/x",
)  # fmt: skip
ADDRESSES = (  # lines of a submodule
    "update = !{evil}", "url = ext::{evil}", "url = -u{evil}", "url = {victim}/repository", "path = ../x",
    "path = .git",
)  # fmt: skip
OPERATIONS = (  # files of one that was begun
    ("rebase-merge/strategy", "evil"),
    ("rebase-merge/strategy", "-evil"),
    ("rebase-merge/strategy_opts", "'--subtree=../..'"),
    ("rebase-merge/gpg_sign_opt", "-S;x"),
    ("rebase-merge/head-name", "refs/heads/../../x"),
    ("rebase-merge/autostash", "../../x"),
    ("rebase-merge/refs-to-delete", "refs/../../../x\n"),
    ("rebase-merge/update-refs", "refs/heads/../x\n{oid}\n{oid}\n"),
    ("rebase-merge/author-script", "#!/bin/sh\n{evil}\n"),
    ("rebase-apply/apply-opt", "'--directory=../..' '--unsafe-paths'"),
    ("sequencer/opts", "[options]\n\tstrategy = evil\n"),
    ("rebase-merge/squash-onto", "{oid}"),
    ("rebase-merge/rewritten-list", "x y\n"),
    ("rebase-merge/allow_rerere_autoupdate", "-x"),
    ("rebase-merge/autostash", "{oid}"),
)

TABLES = {name: table for name, table in globals().items() if name.isupper()}
