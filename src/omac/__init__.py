"""omac: an event-sourced engine that runs coding agents and accounts for what they touch."""

__version__ = "0.1.0"
