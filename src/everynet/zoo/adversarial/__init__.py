"""Attacks on a network, from one step to the smallest change, and training that withstands them."""
