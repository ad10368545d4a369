"""Language: models of the next word, and what words mean."""
