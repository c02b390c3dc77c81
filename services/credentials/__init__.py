"""Credentials: values for skills, their defaults, and what a start needs."""
