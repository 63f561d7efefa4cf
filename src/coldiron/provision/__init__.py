"""Provisioning's pure core: which disk, which partitions, which token, which image, what is asked of a BMC.

Nothing here speaks to a machine: every function takes what was read and returns what to do, or refuses.
"""
