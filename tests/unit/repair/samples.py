"""A cluster with what can be repaired, and what cannot."""

CLUSTER = """\
plugin: coldiron.cluster.cluster
name: lab
domain: lab.internal
networks:
  cluster:
    subnet: 10.98.0.0/24
features:
  home_backend: provided
defaults:
  platform: container
nodes:
  - name: head01
    kind: head
    address: 10.98.0.1
  - name: cpu[01-03]
    kind: cpu
    address: 10.98.0.31
    hardware: {cores_per_socket: 2, memory_gib: 2}
  - name: gpu02
    kind: gpu
    platform: metal
    address: 10.98.0.42
    mac: "52:54:00:00:00:42"
    bmc: {address: 10.98.0.142, credentials: bmc_gpu}
    disks:
      - {use: system, serial: SYS1, size_gb: 960}
      - {use: data, serial: DATA1}
    hardware: {cores_per_socket: 2, memory_gib: 2, gpus: {type: h100, count: 4}}
  - name: gpu03
    kind: gpu
    platform: metal
    address: 10.98.0.43
    hardware: {cores_per_socket: 2, memory_gib: 2, gpus: {type: h100, count: 4}}
"""
