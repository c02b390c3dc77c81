"""What git's files on disk say, and what of them a confined program is shown."""

if not __name__.startswith("omac."):  # a bare import would make different classes of the same names
    raise ImportError("import omac.adapters.git, not adapters.git")
