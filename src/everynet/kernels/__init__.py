"""Compiled loops for the CPU, each with a form in torch for other devices."""
