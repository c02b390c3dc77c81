"""Proofs about a journal: that nothing in it was changed, removed or reordered."""
