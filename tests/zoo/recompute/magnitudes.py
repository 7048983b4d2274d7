"""Counting elements, and adding up their squares, by magnitude."""

import functools

import numpy


class Magnitudes:
    """What the histograms of some rows, their smallest and largest magnitudes tell of the elements up to a threshold: all of the bins below
    it, and of the bin that it lies in as many as the extremes say."""

    LOWER_EDGES = numpy.concatenate([[2.0**-149], 2.0 ** numpy.arange(-126, 128)])
    LEAST = numpy.concatenate([[0.0], LOWER_EDGES[1:]])  # a square of bin 0, of all subnormals of FP32, is told to be anything
    UPPER_EDGES = numpy.concatenate([LOWER_EDGES[1:], [2.0**128]])

    def __init__(self, facts, rows):
        self.bins, self.index = facts.trace.histograms[rows], numpy.arange(len(rows))
        self.smallest, self.largest = facts.rows.smallest[rows], facts.rows.largest[rows]

    @functools.cached_property
    def counts(self):
        """Up to each bin."""
        return numpy.cumsum(self.bins, axis=1)

    @functools.cached_property
    def squares(self):
        """(at least, at most) up to each bin: a square is from that of its lower edge to that of its upper one."""
        return tuple(numpy.cumsum(self.bins * edges**2, axis=1) for edges in (self.LEAST, self.UPPER_EDGES))

    @functools.cached_property
    def before(self):
        """(counts, squares at least) of all bins before each, and before the end."""
        zero = numpy.zeros((len(self.index), 1))
        return tuple(numpy.concatenate([zero, totals], axis=1) for totals in (self.counts, self.squares[0]))

    def below(self, totals, bin_of):
        return numpy.where(bin_of > 0, totals[self.index, numpy.maximum(bin_of - 1, 0)], 0)

    def inside(self, thresholds):
        """The bins that hold these, and (at least, at most) how many of their elements lie up to them."""
        smallest, largest = self.smallest, self.largest
        bin_of = numpy.searchsorted(self.LOWER_EDGES, thresholds, side="right") - 1
        inside = numpy.where(bin_of >= 0, self.bins[self.index, numpy.maximum(bin_of, 0)], 0)
        edge, next_edge = self.LOWER_EDGES[numpy.maximum(bin_of, 0)], self.UPPER_EDGES[numpy.maximum(bin_of, 0)]
        has_smallest, has_largest = (smallest >= edge) & (smallest < next_edge), (largest >= edge) & (largest < next_edge)
        least = numpy.where(has_smallest & (smallest <= thresholds), 1, 0)
        most = inside - numpy.where(has_largest & (largest > thresholds), 1, 0)
        all_above = has_smallest & (smallest > thresholds)
        all_below = (has_largest & (largest <= thresholds)) | (thresholds >= numpy.nextafter(next_edge, 0.0))
        least = numpy.where(all_below, inside, numpy.where(all_above, 0, numpy.minimum(least, inside)))
        most = numpy.where(all_above, 0, numpy.where(all_below, inside, numpy.maximum(most, least)))
        return bin_of, least, most

    def up_to(self, thresholds):
        """(at least, at most) how many elements."""
        bin_of, least, most = self.inside(thresholds)
        under = self.below(self.counts, bin_of)
        return under + least, under + most

    def squares_up_to(self, thresholds):
        """(at least, at most) what their squares add up to."""
        bin_of, least, most = self.inside(thresholds)
        of_least, of_most = (self.below(squares, bin_of) for squares in self.squares)
        return (
            of_least + least * self.LEAST[numpy.maximum(bin_of, 0)] ** 2,
            of_most + most * numpy.minimum(thresholds, self.UPPER_EDGES[numpy.maximum(bin_of, 0)]) ** 2,
        )
