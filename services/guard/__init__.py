"""The write guard's reports from inside sandboxes."""
