"""Hopfield networks that recall what was stored, classic and modern, and how much they hold."""
