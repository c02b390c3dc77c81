"""Where the values of secrets are kept: the system's keychain, and omac's own encrypted file."""
