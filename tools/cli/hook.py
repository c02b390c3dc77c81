"""omac hook: have agents call the write guard, or no longer, and what to tell them about it."""

import os
import shlex
import sys
from collections.abc import Mapping

from omac.domain.harness.harness import Harness, Hook
from omac.domain.kernel.refusal import Refusal
from omac.tools.compose import agent_hooks
from omac.tools.terminal.invocation import print_data
from omac.tools.terminal.render import report, say

ROLE = """\
## Where you may write

You work in a git worktree: a checkout of your own, and your shell's working directory. Beside it, often right above it,
is the main checkout of the same repository. When you begin, its files are byte-identical to yours, so that *reading* a
file there by mistake succeeds and looks right. Nothing tells you that the path was wrong until a write lands in
another tree, where `git add` in yours does not find it.

* Bash's cwd is the worktree: prefer relative paths there. A relative path cannot be anchored to the wrong root.
* Where a tool wants an absolute path, begin it with what `git rev-parse --show-toplevel` prints in your worktree, never
  with a root that you remember or infer.
* Temporary files go to /tmp.
* Writes of file tools that would land elsewhere are denied. The denial names the path that was probably meant: use that
  one, and do not work around the denial with the shell.
"""


def install(agent: str, project: bool, user: bool, environment: Mapping[str, str]) -> int:
    """Have an agent ask the write guard. Raises Refusal."""
    harness, hook = agent_hooks.harness_with_hook(agent)
    file = _file("install", harness, hook, project, user, environment)
    changed, are_hooks_off = agent_hooks.install(file, hook, _program())
    say(f"{file.path}: the write guard is {'called from now on' if changed else 'called already'}")
    if are_hooks_off:
        report(f"omac: {file.path} sets {hook.off_switch}: no hook runs until you remove that")
    if hook.notice:
        report(hook.notice)
    if project:
        report("an agent can change its project's file; only your own (--user) is safe from it")
    return 0


def uninstall(agent: str, project: bool, user: bool, environment: Mapping[str, str]) -> int:
    """Have an agent no longer ask the write guard. Raises Refusal."""
    harness, hook = agent_hooks.harness_with_hook(agent)
    file = _file("uninstall", harness, hook, project, user, environment)
    changed = agent_hooks.uninstall(file)
    say(f"{file.path}: the write guard is {'no longer called' if changed else 'not called there'}")
    return 0


def role() -> int:
    """Print what belongs into the document that tells an agent its role."""
    print_data(ROLE.removesuffix("\n"))
    return 0


def _file(
    verb: str, harness: Harness, hook: Hook, project: bool, user: bool, environment: Mapping[str, str]
) -> agent_hooks.HookFile:
    if project and user:
        fix = [f"omac hook {verb} {harness.name} --user"]
        raise Refusal("misuse", "--project and --user cannot be combined", fix=fix)
    return agent_hooks.project_file(hook) if project else agent_hooks.user_file(harness, hook, environment)


def _program() -> str:
    """The absolute path of the omac that people call. Raises Refusal (prerequisite-missing)."""
    beside = os.path.join(os.path.dirname(sys.executable), "omac")
    for path in (sys.argv[0], beside):  # not the first on PATH, which may be an agent's
        if os.path.basename(path) == "omac" and os.access(path, os.X_OK) and os.path.isfile(path):
            return os.path.abspath(path)
    message = "no program named omac is installed that an agent could call"
    raise Refusal("prerequisite-missing", message, fix=[f"ls -l {shlex.quote(beside)}", "command -v omac"])
