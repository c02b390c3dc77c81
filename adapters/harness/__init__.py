"""Harnesses: the settings of agents that omac changes, and the programs that these name."""
