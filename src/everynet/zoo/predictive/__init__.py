"""Predictive coding: networks that learn by local errors alone, beside backpropagation."""
