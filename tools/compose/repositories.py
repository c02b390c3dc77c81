"""The repositories that project directories belong to, for servers and for commands."""

import logging

from omac.adapters.git.commits import BranchHeads as BranchHeads
from omac.adapters.git.common_directory import worktree_folder
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.skills.repository import WorktreeFolder
from omac.services.ports import Repositories

_log = logging.getLogger("omac.repositories")


class GitRepositories(Repositories):
    """The port, by the files of git; what only claims to be a worktree is none."""

    async def of(self, workdir: str) -> WorktreeFolder | None:
        from omac.services.kernel.threads import run_in_thread  # late: commands that only read start without Trio

        return await run_in_thread(repository_of, workdir)


def repository_of(workdir: str) -> WorktreeFolder | None:
    """Return the part of a repository that a canonical directory is, None where it proves to be none."""
    try:
        return worktree_folder(workdir)
    except Refusal as refusal:
        _log.info("%s", refusal.message)
        return None


def repository_for(workdir: str, command: str) -> WorktreeFolder:
    """Return the repository that `--repository` means. Raises Refusal that names `command` for this directory alone."""
    try:
        return worktree_folder(workdir)
    except Refusal as refusal:
        alone = f"{command} --workdir {quoted(workdir)}  # for this directory alone"
        raise Refusal(refusal.reason, refusal.message, fix=(*refusal.fix, alone)) from None
