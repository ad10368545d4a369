"""Autoencoders, Boltzmann machines, GANs, pixels one by one, and diffusion."""
