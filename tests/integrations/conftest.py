"""The host libraries report home when a trainer starts; a test has no business on the network."""

import os

os.environ.update(HF_HUB_DISABLE_TELEMETRY="1", OMP_NUM_THREADS="1")
