"""Two Runs side by side."""
