"""omac: an event-sourced engine that runs coding agents and accounts for what they touch."""
