"""Profiles, diagnoses and utilisation for people."""
