"""The measured processes seen from outside, and what each of them does beside measuring."""
