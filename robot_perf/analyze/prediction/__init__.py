"""A kernel's bound before its counters are read, and the report held against it."""
