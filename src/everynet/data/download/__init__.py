"""Where the files of real sets are, and how they come here."""
