"""The device table, from configs/devices: what vendors say, each number with its source."""
