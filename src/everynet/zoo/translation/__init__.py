"""Sequence to sequence, with and without attention, from dates to sentences."""
