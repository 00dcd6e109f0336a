"""`ceiling` and `roofline`."""
