"""Populations of neurons that represent, compute, integrate and oscillate."""
