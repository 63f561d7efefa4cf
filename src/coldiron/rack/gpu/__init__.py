"""Simulated GPUs: a management library with no accelerator behind it, for the nodes of a rack and nothing else."""
