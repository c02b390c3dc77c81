"""Skills: discovered, registered, approved and removed."""
