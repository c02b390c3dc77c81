"""Harnesses: the coding agents that omac knows."""
