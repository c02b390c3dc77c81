"""Sidecars: the processes of skills, on the host."""
