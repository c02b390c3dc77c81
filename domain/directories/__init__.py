"""Directories: projects whose skills are brought online together."""
