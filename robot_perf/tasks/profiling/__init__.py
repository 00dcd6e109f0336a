"""`profile`, `diagnose` and `utilisation`."""
