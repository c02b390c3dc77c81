"""The branches of a project's repository: what came to them while a run lasted."""

from omac.adapters.git.commits import BranchHeads as ProjectHeads

__all__ = ["ProjectHeads"]
