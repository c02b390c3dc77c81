"""Trio and the outside world: facade, control plane, sidecar processes, skill folders, Linux."""

if not __name__.startswith("omac."):  # a bare import would make different classes of the same names
    raise ImportError("import omac.adapters, not adapters")
