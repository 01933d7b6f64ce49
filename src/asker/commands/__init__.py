"""The commands of the command line, a file for each kind of problem."""
