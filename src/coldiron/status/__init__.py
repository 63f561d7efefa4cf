"""How the cluster is, as its own Prometheus knows it: nodes, alerts and GPUs on one page."""
