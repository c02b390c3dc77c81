"""Evidence: the rows of the audit log."""
