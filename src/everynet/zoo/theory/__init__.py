"""Learning theory by experiment: capacity, generalisation, convergence, wide networks."""
