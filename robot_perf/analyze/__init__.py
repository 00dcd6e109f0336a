"""Pure functions from a saved Run to results: same Run, same answer."""
