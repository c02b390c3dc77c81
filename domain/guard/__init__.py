"""The write guard: which files a tool call would write, and whether it may."""
