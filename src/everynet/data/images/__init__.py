"""Images: decoded, brought to one size, standardised, changed at random."""
