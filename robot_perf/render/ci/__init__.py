"""For continuous integration."""
