"""What git's files on disk say, and what of them a confined program is shown."""
