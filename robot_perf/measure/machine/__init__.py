"""What this machine is: read, never changed."""
