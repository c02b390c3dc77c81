"""HTTP/1.1 as the facade and the control plane share it: heads, bodies, connections and their bounds."""
