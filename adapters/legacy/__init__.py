"""The files of the omac that was written in Go, read as the hostile input they are."""

if not __name__.startswith("omac."):  # a bare import would make different classes of the same names
    raise ImportError("import omac.adapters.legacy, not adapters.legacy")
