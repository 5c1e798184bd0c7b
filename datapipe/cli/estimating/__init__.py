"""The commands of `datapipe estimate`."""
