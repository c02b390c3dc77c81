"""Settings files on disk: the user's own, and a project's, which is read as hostile input."""

if not __name__.startswith("omac."):  # a bare import would make different classes of the same names
    raise ImportError("import omac.adapters.settings, not adapters.settings")
