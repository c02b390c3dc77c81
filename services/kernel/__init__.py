"""The loop: one execution path with its carriers, the owners of aggregates, and recovery."""
