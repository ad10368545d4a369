"""Regression, support vectors, components, factors, mixtures and Bayes, equal to scikit-learn."""
