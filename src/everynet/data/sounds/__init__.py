"""Sound and music as files: how they are read and written, without a dependency."""
