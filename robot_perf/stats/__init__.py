"""Statistics on plain arrays: percentiles, bounds, tests. Pure; numpy and scipy only."""
