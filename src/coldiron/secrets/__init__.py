"""The cluster's secrets: generated once, into an ansible-vault file beside the inventory."""
