"""What the hardware allows, and how near a measurement comes."""
