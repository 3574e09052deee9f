"""The local engine: one process, one device."""
