"""Constants that losses share."""

IGNORED = -100
"""The target of a place that is only there to fill a rectangle; torch's losses leave it out."""
