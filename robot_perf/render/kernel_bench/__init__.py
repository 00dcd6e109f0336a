"""The kernels' bench for people."""
