"""Harnesses: the coding agents that omac knows, each in a module of its name, and a line for it in `names.py`."""
