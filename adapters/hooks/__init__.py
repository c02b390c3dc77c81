"""The agents' hooks: where a tool call would write, and the settings files that call omac for it."""

if not __name__.startswith("omac."):  # a bare import would make different classes of the same names
    raise ImportError("import omac.adapters.hooks, not adapters.hooks")
