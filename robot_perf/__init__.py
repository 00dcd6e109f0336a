"""robot-perf: does this policy answer before the next control tick?"""

__version__ = "0.1.0"
