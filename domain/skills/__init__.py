"""Skills: what they are made of, what they declare, and which of them a person approved."""
