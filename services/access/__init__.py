"""Access: whether a request may go to a skill, and the record of it."""
