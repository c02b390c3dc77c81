"""The commands that must start within milliseconds; they import no module that takes a millisecond to load."""
