"""Sidecar processes: spawned, probed, watched and ended."""

if not __name__.startswith("omac."):  # a bare import would make different classes of the same names
    raise ImportError("import omac.adapters.sidecars, not adapters.sidecars")
