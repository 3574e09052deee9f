"""Triton kernels; eager torch is the reference and the fallback."""
