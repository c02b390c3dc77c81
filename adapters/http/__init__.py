"""HTTP/1.1 as the facade and the control plane share it: heads, bodies, connections and their bounds."""

if not __name__.startswith("omac."):  # a bare import would make different classes of the same names
    raise ImportError("import omac.adapters.http, not adapters.http")
