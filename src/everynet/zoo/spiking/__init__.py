"""Neurons that spike, from the membrane to networks that are balanced, converted or trained."""
