"""Confining one program: bubblewrap or Landlock, and the filter of system calls."""

if not __name__.startswith("omac."):  # a bare import would make different classes of the same names
    raise ImportError("import omac.adapters.sandbox, not adapters.sandbox")
