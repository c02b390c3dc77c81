"""What must start within milliseconds; it imports nothing that takes one."""
