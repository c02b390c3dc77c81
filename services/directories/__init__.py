"""Directories: what drivers may ask of them, and the reactor that makes their skills follow the record."""
