"""The program that a person runs: the command line and the composition root."""

if not __name__.startswith("omac."):  # a bare import would make different classes of the same names
    raise ImportError("import omac.tools, not tools")
