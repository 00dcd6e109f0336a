"""Torch policies of any format: opened, called, reset; on the CPU and for the device backends."""
