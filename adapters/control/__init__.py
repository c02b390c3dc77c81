"""The control plane: HTTP for people and bridges, on a private socket and on loopback TCP."""
