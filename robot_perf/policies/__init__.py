"""Policies: what a file is, what goes in and out, what it remembers. Nothing is executed to find out."""
