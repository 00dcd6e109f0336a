"""Published models by their configuration."""
