"""The event store: schema, codec, recorder, group-commit writer and the feed of committed events."""

if not __name__.startswith("omac."):  # a bare import would make different classes of the same names
    raise ImportError("import omac.journal, not journal")
