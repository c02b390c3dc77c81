"""The content of git's files on disk, and the part of it that a confined program is shown."""
