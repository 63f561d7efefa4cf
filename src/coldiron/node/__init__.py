"""Adding a node to a running cluster and taking one out again."""
