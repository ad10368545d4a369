"""Tables: lines, columns and arrays."""
