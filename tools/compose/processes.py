"""Processes as commands end them."""

from omac.adapters.linux.process import kill

__all__ = ["kill"]
