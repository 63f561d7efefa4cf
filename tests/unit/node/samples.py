"""A cluster of containers whose nodes come and go."""

CLUSTER = """\
plugin: coldiron.cluster.cluster
name: virtual
domain: virtual.internal
networks:
  cluster:
    subnet: 10.99.0.0/24
features:
  home_backend: provided
defaults:
  platform: container
nodes:
  - name: head01
    kind: head
    address: 10.99.0.1

  - name: storage01
    kind: storage
    address: 10.99.0.21

  - name: cpu01
    kind: cpu
    address: 10.99.0.31
    hardware:
      cores_per_socket: 2
      memory_gib: 2

  # Simulated.
  - name: gpu[01-03]
    kind: gpu
    address: 10.99.0.41
    hardware:
      cores_per_socket: 2
      memory_gib: 2
      gpus:
        type: h100
        count: 4
"""
