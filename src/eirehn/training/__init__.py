"""Trainings: recipes carried out, resumed and evaluated."""

from .._internal.extras import need

need("pytorch_lightning")
