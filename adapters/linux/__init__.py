"""System calls, processes and programs of the host."""

if not __name__.startswith("omac."):  # a bare import would make different classes of the same names
    raise ImportError("import omac.adapters.linux, not adapters.linux")
