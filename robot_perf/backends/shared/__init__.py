"""What several backends use."""
