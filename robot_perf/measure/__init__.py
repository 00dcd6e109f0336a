"""The measured half: worker, loop, step, and the conductor that watches them."""
