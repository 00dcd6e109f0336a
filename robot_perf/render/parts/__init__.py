"""Pieces of a Run's report that the text, HTML, markdown and CI renderers share."""
