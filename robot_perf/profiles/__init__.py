"""Importers: whatever tool wrote a profile, one kernel table and one API-call table, in ns."""
