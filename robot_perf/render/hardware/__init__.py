"""Devices, ceilings and the machine for people."""
