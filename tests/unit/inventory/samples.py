"""A cluster.yml without a fault, to change."""

SOUND = """\
plugin: coldiron.cluster.cluster
name: hopper
domain: hopper.internal
networks:
  cluster:
    subnet: 10.99.0.0/24
    gateway: 10.99.0.254
nodes:
  - name: head01
    kind: head
    address: 10.99.0.1
  - name: storage01
    kind: storage
    address: 10.99.0.2
  - name: gpu[01-04]
    kind: gpu
    address: 10.99.0.11
    hardware: {cores_per_socket: 8, memory_gib: 64, gpus: {type: h100, count: 4}}
"""
