"""The laws of training: optimisers, schedules, saddles, initialisation, normalisation."""
