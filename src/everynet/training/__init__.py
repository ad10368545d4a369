"""The loop: one update after another, on a device, as a graph, by several processes."""
