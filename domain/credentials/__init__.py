"""Credentials: the values that skills are given, and where each comes from."""
