"""Training, resuming and evaluating recipes."""

from .._internal.extras import need

need("pytorch_lightning")
