"""The reader of Relay text."""
