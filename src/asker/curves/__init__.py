"""Curve fits of tables: expressions, files, starting values, and the page of the command `asker fit`."""
