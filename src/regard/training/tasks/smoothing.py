"""The section [objective] of tasks whose targets are classes or tokens."""

from __future__ import annotations

from regard.training.recipe import Section, Share


class Smoothing(Section):
    """The share of each target that is spread evenly over all of them."""

    smoothing: Share = 0.0
