"""Settings files on disk: the user's own, and a project's, which is read as hostile input."""
