"""The converter of Relay programs to meta IR."""
