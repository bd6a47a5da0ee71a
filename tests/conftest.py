import os

import torch
from hypothesis import settings

# One thread a worker: the tensors are tiny, and the tests run side by side.
torch.set_num_threads(1)
settings.register_profile("ci", max_examples=40, deadline=None, derandomize=True)
settings.register_profile("dev", max_examples=15, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "dev")
