"""Use cases and reactors, and the ports through which they reach the outside world."""

if not __name__.startswith("omac."):  # a bare import would make different classes of the same names
    raise ImportError("import omac.services, not services")
