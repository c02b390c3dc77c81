"""The composition room: adapters and services are put together here."""
