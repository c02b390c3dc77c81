"""Files: the state directory, locks, JSON texts, and paths that lead through no symbolic link."""
