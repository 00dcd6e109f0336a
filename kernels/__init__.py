"""Triton kernels, their references and launch tables. Imports without triton."""
