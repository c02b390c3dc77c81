"""The sandbox: what a confined program is shown, and what is judged when it has ended."""
