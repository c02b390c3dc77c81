"""Settings: changes of omac's own settings."""
