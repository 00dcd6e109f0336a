"""What a bench report says."""
