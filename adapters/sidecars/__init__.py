"""Sidecar processes: spawned, probed, watched and ended."""
