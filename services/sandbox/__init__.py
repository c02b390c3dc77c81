"""Sandboxes: a policy composed from a request, and its launch, recorded."""
