"""The bench of the shipped kernels."""
