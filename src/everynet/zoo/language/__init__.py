"""Models of the next word, from counts to LSTMs, and vectors of words."""
