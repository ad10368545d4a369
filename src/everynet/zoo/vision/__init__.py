"""Convolution from its sums to deep networks; segmentation, boxes, style, your own photos."""
