"""Solves that end at a certain iteration, as if their process had been killed."""


class Killed(Exception):
    pass


def kill_at(n):
    def on_iteration(line):
        if line.iteration == n:
            raise Killed

    return on_iteration
