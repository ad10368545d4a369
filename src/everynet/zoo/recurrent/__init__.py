"""Networks with a state: plain, gated, minimal, bidirectional; memory, sentences and texts."""
