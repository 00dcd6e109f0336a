"""A policy at its rate under a profiler."""
