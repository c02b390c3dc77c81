"""What people see and type: the call's streams, plain text, prompts and moments."""
