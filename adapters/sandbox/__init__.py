"""Confining one program: bubblewrap or Landlock, and the filter of system calls."""
