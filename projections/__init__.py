"""Read models: pure folds of the journal, which together are the live system."""

if not __name__.startswith("omac."):  # a bare import would make different classes of the same names
    raise ImportError("import omac.projections, not projections")
