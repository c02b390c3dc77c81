"""The import of what an earlier omac, written in Go, left behind."""
