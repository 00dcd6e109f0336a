"""A bench report for people."""
