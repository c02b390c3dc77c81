"""Access: where routing tokens and mounts lead now."""
