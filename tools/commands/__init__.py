"""What each subcommand does, one module a noun."""

if not __name__.startswith("omac."):  # a bare import would make different classes of the same names
    raise ImportError("import omac.tools.commands, not tools.commands")
