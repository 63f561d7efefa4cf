"""A made-up site of any size: pods of 32 nodes with GPUs, each with its racks, feeds, fabric and switches.

Every node has its MAC, serial number and management controller listed, as a file would that a program wrote.
"""

from __future__ import annotations

POD = 32
PER_RACK = 4

_HEAD = """\
plugin: coldiron.cluster.cluster
name: bench
domain: bench.internal
site: {currency: EUR, price_per_kwh: 0.2, pue: 1.3}
feeds:
  A: {volts: 400, phases: 3, amps: 5000}
  B: {volts: 400, phases: 3, amps: 5000}
rooms:
  hall: {cooling: {air_kw: 100000}}
networks:
  cluster: {subnet: 10.0.0.0/16, gateway: 10.0.255.254, vlan: 10, gbit_per_s: 1}
  storage: {subnet: 10.1.0.0/16, vlan: 11, gbit_per_s: 100, mtu: 9000}
  bmc: {subnet: 10.2.0.0/16, vlan: 12, gbit_per_s: 1}
defaults:
  hardware: &server
    sockets: 2
    cores_per_socket: 32
    threads_per_core: 2
    memory_gib: 512
    height_u: 1
    depth_mm: 800
    weight_kg: 20
    draw_watts: 800
    supplies: {count: 2, watts: 1200, min_active: 1, inlet: c14, efficiency: titanium, inrush_amps: 20}
    ports: [{count: 2, gbit_per_s: 100}]
"""
_RACK = """\
  - name: {name}
    room: hall
    row: {row}
    units: 48
    depth_mm: 1200
    load_kg: 1360
    cooling: {{air_kw: 80}}
    pdus:
      - {{name: a, feed: A, volts: 400, phases: 3, amps: 63, outlets: {{c13: 24, c19: 16}}}}
      - {{name: b, feed: B, volts: 400, phases: 3, amps: 63, outlets: {{c13: 24, c19: 16}}}}
"""
_POD = """\
  - name: {name}
    kind: gpu
    model: dgx-h100
    address: {address}
    addresses: {{storage: {storage}}}
    mac: [{macs}]
    serial: [{serials}]
    bmc: {{address: {bmc}, credentials: bmc_credentials, mac: [{bmc_macs}]}}
    rack: {racks}
    u: 1
    workload: llm
    hardware: {hardware}
"""
# What a site would write of its machine, once; the other pods refer to it.
_DGX = "&dgx {sockets: 2, cores_per_socket: 56, threads_per_core: 2, memory_gib: 2048}"


def cluster_yml(nodes: int) -> str:
    """The text of a cluster.yml with ``nodes`` nodes with GPUs, and a head, a login and a storage node besides."""
    pods = [(first, min(POD, nodes - first)) for first in range(0, nodes, POD)]
    parts = [_HEAD, "racks:\n", _RACK.format(name="core", row="Z")]
    for pod, (_, size) in enumerate(pods):
        parts.append(_RACK.format(name=_racks(pod, size), row=f"R{pod}"))
    parts.append("fabrics:\n")
    for pod, (first, size) in enumerate(pods):
        parts.append(
            f"  pod{pod:03d}: {{link_layer: infiniband, gbit_per_s: 400, rails: 8, nodes: {_names(first, size)!r}}}\n"
        )
    parts.append("switches:\n")
    for pod in range(len(pods)):
        rack = f"p{pod:03d}r1"
        for name, number, function in (("leaf", 8, "leaf"), ("spine", 4, "spine")):
            first = pod * number + 1
            rails = ", rails: [1, 2, 3, 4, 5, 6, 7, 8]" if function == "leaf" else ""
            parts.append(
                f"  - {{name: '{name}[{first:05d}-{first + number - 1:05d}]', model: qm9700, function: {function}, "
                f"fabric: pod{pod:03d}, rack: {rack}, u: {36 if function == 'leaf' else 44}{rails}}}\n"
            )
        parts += [
            f"  - {{name: {name}{pod:03d}, model: sn2201, function: management, networks: [{network}], rack: {rack}}}\n"
            for name, network in (("eth", "cluster"), ("oob", "bmc"))
        ]
    parts.append("nodes:\n")
    parts.append("  - {name: head01, kind: head, address: 10.0.254.1, rack: core}\n")
    parts.append("  - {name: login01, kind: login, address: 10.0.254.2, rack: core}\n")
    parts.append("  - {name: storage01, kind: storage, address: 10.0.254.3, rack: core}\n")
    parts += [_pod(pod, first, size) for pod, (first, size) in enumerate(pods)]
    return "".join(parts)


def _pod(pod: int, first: int, size: int) -> str:
    numbers = range(first + 1, first + size + 1)
    return _POD.format(
        name=_names(first, size),
        address=_address(0, first),
        storage=_address(1, first),
        bmc=_address(2, first),
        macs=", ".join(f'"{_mac(0, number)}"' for number in numbers),
        bmc_macs=", ".join(f'"{_mac(1, number)}"' for number in numbers),
        serials=", ".join(f"S{number:06d}" for number in numbers),
        racks=_racks(pod, size),
        hardware=_DGX if pod == 0 else "*dgx",
    )


def _names(first: int, size: int) -> str:
    return f"gpu[{first + 1:05d}-{first + size:05d}]" if size > 1 else f"gpu{first + 1:05d}"


def _racks(pod: int, size: int) -> str:
    number = -(-size // PER_RACK)
    return f"p{pod:03d}r[1-{number}]" if number > 1 else f"p{pod:03d}r1"


def _address(network: int, first: int) -> str:
    number = first + 1
    return f"10.{network}.{number >> 8}.{number & 255}"


def _mac(port: int, number: int) -> str:
    return f"52:54:{port:02x}:{number >> 16:02x}:{number >> 8 & 255:02x}:{number & 255:02x}"
