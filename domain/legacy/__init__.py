"""What an earlier omac, written in Go, left behind."""
