"""The control plane: HTTP for people and bridges, on a private socket and on loopback TCP."""

if not __name__.startswith("omac."):  # a bare import would make different classes of the same names
    raise ImportError("import omac.adapters.control, not adapters.control")
