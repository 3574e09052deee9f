"""The host libraries must not go on the network in a test: they report home when a model starts."""

import os

os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1", OMP_NUM_THREADS="1")
