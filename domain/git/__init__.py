"""The files that git keeps on disk, as a grammar: which file may be where, what may be in it, and who may change it."""
