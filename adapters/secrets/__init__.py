"""Where the values of secrets are kept: the system's keychain, and omac's own encrypted file."""

if not __name__.startswith("omac."):  # a bare import would make different classes of the same names
    raise ImportError("import omac.adapters.secrets, not adapters.secrets")
