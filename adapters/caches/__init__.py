"""Tool caches on disk: one folder for each project, created or verified at a launch, listed and removed on request."""
