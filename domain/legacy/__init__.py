"""The data that an earlier omac, written in Go, left behind."""
