"""The filter of a filter method."""

from asker.strategies.filter import Filter


def test_a_filter_accepts_pairs_that_beat_every_corner_in_f_or_h():
    corners = Filter().with_corner(1.0, 5.0).with_corner(3.0, 2.0)
    assert corners.accepts(0.9, 100)
    assert corners.accepts(2.9, 4.9)
    assert corners.accepts(100, 1.9)
    assert not corners.accepts(1.0, 5.0)
    assert not corners.accepts(3.5, 2.5)
    assert not corners.accepts(float("nan"), 0.0)
    assert not corners.accepts(0.0, float("nan"))
    assert corners.with_corner(0.5, 1.0).corners == ((0.5, 1.0),)
