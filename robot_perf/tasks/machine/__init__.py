"""`doctor`, `selftest` and `devices`."""
