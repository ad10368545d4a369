"""What every room stands on and that knows nothing of networks."""
