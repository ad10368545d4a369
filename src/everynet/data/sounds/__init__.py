"""Sounds and notes: files read and written."""
