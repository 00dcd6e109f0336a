"""What this machine's memory and matrix units reach."""
