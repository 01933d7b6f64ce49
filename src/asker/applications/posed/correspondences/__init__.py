"""Features, matches and tracks."""
