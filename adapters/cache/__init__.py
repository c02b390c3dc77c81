"""Tool caches on disk: one folder a workdir, made or verified at a launch, listed and removed on request."""

if not __name__.startswith("omac."):  # a bare import would make different classes of the same names
    raise ImportError("import omac.adapters.cache, not adapters.cache")
