"""What all contexts of the domain share: aggregates, and the names of their streams."""
