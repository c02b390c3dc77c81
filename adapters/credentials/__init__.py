"""The stores for the values of secrets: the system's keychain, and omac's own encrypted file."""
