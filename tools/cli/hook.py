"""omac hook role: what an agent's role document should say about the write guard."""

from omac.tools.terminal.invocation import print_data

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


def role() -> int:
    """Print what belongs into the document that tells an agent its role."""
    print_data(ROLE.removesuffix("\n"))
    return 0
