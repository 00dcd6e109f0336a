"""`bench`."""
