"""Perceptrons, networks of several layers, backpropagation, and what they can express."""
