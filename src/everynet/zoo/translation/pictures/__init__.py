"""Pictures that networks of this family alone draw."""
