"""Access: the requests that agents make to skills, and the calls to the control plane."""
