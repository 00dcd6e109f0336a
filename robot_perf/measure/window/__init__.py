"""Around the measured window: when warm-up ends, the truth gate, what happens in the idle time, the loop thread's settings."""
