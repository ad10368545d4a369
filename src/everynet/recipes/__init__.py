"""What is learned from what: the four kinds of recipes, their settings and where they are found.

Nothing heavy is imported before it is used: `list` and completion read the catalogue alone.
"""
