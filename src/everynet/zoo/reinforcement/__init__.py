"""From Bellman's equation and Q-learning to deep Q-networks on thousands of games at once."""
