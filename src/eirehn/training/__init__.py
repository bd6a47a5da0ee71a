"""Training on PyTorch Lightning: seed ensembles, runs that survive being killed, their logs and results."""
