"""The write guard: tool calls as agents describe them, and the files that they would write."""
