"""The facade: the HTTP data plane between an agent and its skills."""

if not __name__.startswith("omac."):  # a bare import would make different classes of the same names
    raise ImportError("import omac.adapters.facade, not adapters.facade")
