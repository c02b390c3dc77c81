"""Agents: omac's hooks in their settings."""
