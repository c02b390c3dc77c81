"""System calls, processes and programs of the host."""
