"""Stated disturbances beside a measurement, each in processes of its own."""
