"""The files of the omac that was written in Go, read as the hostile input they are."""
