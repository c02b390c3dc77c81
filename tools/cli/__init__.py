"""The commands: each parses, calls one use case, prints, and chooses the exit code."""
