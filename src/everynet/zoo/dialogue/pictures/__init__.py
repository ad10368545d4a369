"""Pictures of networks that talk."""
