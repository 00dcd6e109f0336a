"""What lies behind a Run's figures: causes, cold start, dependence, the tail, the course of a long run."""
