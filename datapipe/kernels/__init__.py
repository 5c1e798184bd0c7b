"""
Pure loops on arrays, compiled by numba: arrays in, arrays or numbers out, no objects and no files.

A kernel imports nothing of the package but `jit` and its fellow kernels, and has an obvious twin in tests/naive.py.
"""
