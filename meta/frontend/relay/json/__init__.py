"""The reader of Relay JSON."""
