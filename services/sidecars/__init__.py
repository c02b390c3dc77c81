"""Sidecars: the reactor that makes each process follow its recorded state."""
