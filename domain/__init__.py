"""The rules: state machines, events, policies and value objects. Pure: no I/O, clock or randomness."""

if not __name__.startswith("omac."):  # a bare import would make different classes of the same names
    raise ImportError("import omac.domain, not domain")
