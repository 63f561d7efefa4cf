"""A NetBox of a few machines on the loopback: its answers have the shape of those of NetBox 4.1's API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlparse

from coldiron.inventory import Cluster, Node

TOKEN = "0123456789abcdef0123456789abcdef01234567"
SINGLE = {"home_server", "netboot_server", "mariadb", "slurm_controller", "slurm_dbd"}
# What nb_inventory asks for besides devices, interfaces and addresses.
EMPTY = (
    "virtualization/virtual-machines",
    "virtualization/clusters",
    "virtualization/interfaces",
    "dcim/regions",
    "dcim/site-groups",
    "dcim/locations",
    "tenancy/tenants",
)


def brief(number: int, name: str, api: str) -> dict[str, Any]:
    """An object as it stands inside another one."""
    url = f"http://netbox.example.org/api/{api}/{number}/"
    return {"id": number, "url": url, "display": name, "name": name, "slug": name.replace("_", "-")}


class NetBox:
    """The answers that tell of a cluster's nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self.numbers: dict[tuple[str, str], int] = {}
        self.lists: dict[str, list[dict[str, Any]]] = {path: [] for path in EMPTY}
        for path in ("dcim/devices", "dcim/interfaces", "ipam/ip-addresses"):
            self.lists[path] = []
        self.asked: list[str] = []
        for number, node in enumerate(cluster.nodes, 1):
            self._device(number, node, cluster.name)
        for api in ("dcim/sites", "dcim/racks", "dcim/device-roles", "dcim/platforms", "dcim/device-types",
                    "dcim/manufacturers"):  # fmt: skip
            known = [(number, name) for (one, name), number in self.numbers.items() if one == api]
            more = {"prefix_count": 0, "region": None, "group": None, "time_zone": None, "facility": ""}
            self.lists[api] = [
                {**brief(number, name, api), "tags": [], "custom_fields": {}, **more}
                for number, name in known
            ]

    def _named(self, api: str, name: str) -> dict[str, Any]:
        return brief(self.numbers.setdefault((api, name), len(self.numbers) + 1), name, api)

    def _ip(self, number: int, address: object, interface: dict[str, Any]) -> dict[str, Any]:
        found = {
            "id": number,
            "display": f"{address}/24",
            "family": {"value": 4, "label": "IPv4"},
            "address": f"{address}/24",
            "status": {"value": "active", "label": "Active"},
            "dns_name": "",
            "assigned_object_type": "dcim.interface",
            "assigned_object_id": interface["id"],
            "assigned_object": {"id": interface["id"], "name": interface["name"]},
            "tags": [],
            "custom_fields": {},
        }
        self.lists["ipam/ip-addresses"].append(found)
        return found

    def _interface(self, number: int, device: int, name: str, mac: str | None) -> dict[str, Any]:
        found = {
            "id": number,
            "device": {"id": device},
            "name": name,
            "enabled": True,
            "mgmt_only": name == "bmc",
            "mac_address": mac.upper() if mac else None,
            "count_ipaddresses": 1,
            "tags": [],
            "custom_fields": {},
        }
        self.lists["dcim/interfaces"].append(found)
        return found

    def _device(self, number: int, node: Node, cluster: str) -> None:
        own = self._interface(2 * number, number, "eth0", node.mac)
        address = self._ip(2 * number, node.address, own)
        oob = None
        if node.bmc_address:
            oob = self._ip(
                2 * number + 1, node.bmc_address, self._interface(2 * number + 1, number, "bmc", None)
            )
        hardware = node.hardware
        gpus = hardware.gpus if hardware else None
        fields = {
            "sockets": hardware.sockets if hardware else None,
            "cores_per_socket": hardware.cores_per_socket if hardware else None,
            "threads_per_core": hardware.threads_per_core if hardware else None,
            "memory_gib": int(hardware.memory_gib) if hardware and hardware.memory_gib else None,
            "gpu_type": gpus.type if gpus else None,
            "gpu_count": gpus.count if gpus else None,
        }
        tags = [cluster, *(function for function in node.functions if function in SINGLE)]
        self.lists["dcim/devices"].append(
            {
                "id": number,
                "url": f"http://netbox.example.org/api/dcim/devices/{number}/",
                "display": node.name,
                "name": node.name,
                "device_type": {
                    **self._named("dcim/device-types", node.model or "server"),
                    "manufacturer": self._named("dcim/manufacturers", "maker"),
                },
                "role": self._named("dcim/device-roles", node.kind),
                "tenant": None,
                "platform": self._named("dcim/platforms", node.distribution),
                "serial": node.serial or "",
                "asset_tag": None,
                "site": self._named("dcim/sites", "north"),
                "location": None,
                "rack": self._named("dcim/racks", node.rack) if node.rack else None,
                "position": node.u,
                "face": {"value": "front", "label": "Front"},
                "status": {"value": "active", "label": "Active"},
                "primary_ip": address,
                "primary_ip4": address,
                "primary_ip6": None,
                "oob_ip": oob,
                "cluster": None,
                "virtual_chassis": None,
                "local_context_data": None,
                "tags": [
                    {**brief(index, tag, "extras/tags"), "color": "9e9e9e"} for index, tag in enumerate(tags)
                ],
                "custom_fields": fields,
            }
        )

    def answer(self, url: str) -> dict[str, Any] | None:
        """What NetBox says to a request; None where it knows no such address."""
        self.asked.append(url)
        parts = urlparse(url)
        path = parts.path.removeprefix("/api/").strip("/")
        if path == "status":
            return {
                "django-version": "5.0.9",
                "netbox-version": "4.1.4",
                "plugins": {},
                "python-version": "3.12.3",
            }
        if path == "schema":
            names = ("tag", "status", "role", "site", "limit")
            get = {"get": {"parameters": [{"in": "query", "name": name} for name in names]}}
            places = ("/api/dcim/devices/", "/api/virtualization/virtual-machines/")
            return {"openapi": "3.0.3", "info": {"version": "4.1.4"}, "paths": dict.fromkeys(places, get)}
        if path not in self.lists:
            return None
        found = self.lists[path]
        for tag in parse_qs(parts.query).get("tag", []):
            found = [one for one in found if tag in [inner["slug"] for inner in one["tags"]]]
        return {"count": len(found), "next": None, "previous": None, "results": found}


@contextmanager
def serving(netbox: NetBox) -> Iterator[str]:
    """Serve ``netbox`` on the loopback; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = netbox.answer(self.path) if self.headers["Authorization"] == f"Token {TOKEN}" else None
            body = json.dumps(found or {"detail": "Not found."}).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing on the terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
