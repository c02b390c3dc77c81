"""The terminal of a person: the call's streams, plain text, prompts and times."""
