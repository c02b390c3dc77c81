"""Settings: omac's own, which words they take, and how they are changed."""
