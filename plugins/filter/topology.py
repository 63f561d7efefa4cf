"""Filters that playbooks/group_vars/all/topology.yml builds roles' options with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network, collapse_addresses
from typing import Any

from ansible.errors import AnsibleFilterError

Variables = Mapping[str, Mapping[str, Any]]
NOTHING: Variables = {}


def _of(host: str, hostvars: Variables, known: Variables) -> Mapping[str, Any]:
    """A host's variables: what ``known`` says of it, else what Ansible does.

    Ansible gathers all variables of a host anew at each question. Asked by every host about every other one, that is
    what a large cluster would spend its time on; the inventory plugin says the few that count once, to all.
    """
    return known[host] if host in known else hostvars[host]


# What topology.yml calls the groups that it reads.
GROUPS = {
    "nodes": "cluster",
    "heads": "dns_server",
    "time_servers": "time_server",
    "home_servers": "home_server",
    "nfs_servers": "nfs_server",
    "mariadb": "mariadb",
    "slurm_dbds": "slurm_dbd",
    "slurm_controllers": "slurm_controller",
    "slurm_workers": "slurm_worker",
    "slurm_logins": "slurm_login",
    "machines": "bare_metal",
    "ipmi_machines": "bmc_ipmi",
    "netboot_servers": "netboot_server",
    "netboot_caches": "netboot_cache",
    "networked": "network_managed",
    "gpu_nodes": "gpu_node",
    "podman_hosts": "podman",
    "apptainer_hosts": "apptainer",
    "docker_hosts": "docker",
    "enroot_hosts": "enroot",
    "containerd_hosts": "containerd",
    "mpi_hosts": "mpi",
    "pam_hosts": "slurm_pam",
    "monitored": "node_exporter",
    "prometheus_hosts": "prometheus",
    "alertmanagers": "alertmanager",
    "blackbox_hosts": "blackbox_exporter",
    "slurm_exporters": "slurm_exporter",
    "log_servers": "elasticsearch",
    "log_shippers": "log_shipper",
    "log_viewers": "kibana",
    "dashboard_hosts": "grafana",
}
# Roles by who runs them, in the order of the stages; the second line is everybody's.
ROLES = (
    ("networked", ("network",)),
    ("nodes", ("base", "dns", "time", "users", "nfs")),
    ("netboot_servers", ("netboot", "image")),
    ("netboot_caches", ("netboot_cache",)),
    ("with_containers", ("subids",)),
    ("docker_hosts", ("docker",)),
    ("podman_hosts", ("podman",)),
    ("apptainer_hosts", ("apptainer",)),
    ("enroot_hosts", ("enroot",)),
    ("containerd_hosts", ("containerd",)),
    ("with_gpu_containers", ("nvidia_container_toolkit",)),
    ("gpu_nodes", ("gpu_driver", "gpu_fabric", "gpu_power", "gpu_mig", "cuda", "gpu_health", "gpu_exporter")),
    ("slurm", ("slurm_common", "munge")),
    ("mariadb", ("mariadb",)),
    ("slurm_dbds", ("slurm_dbd",)),
    ("slurm_controllers", ("slurm_controller",)),
    ("slurm_workers", ("slurm_worker",)),
    ("slurm_logins", ("slurm_login",)),
    ("pyxis_hosts", ("pyxis",)),
    ("mpi_hosts", ("mpi",)),
    ("pam_hosts", ("slurm_pam",)),
    ("monitored", ("node_exporter",)),
    ("prometheus_hosts", ("prometheus",)),
    ("alertmanagers", ("alertmanager",)),
    ("blackbox_hosts", ("blackbox_exporter",)),
    ("slurm_exporters", ("slurm_exporter",)),
    ("ipmi_hosts", ("ipmi_exporter",)),
    ("redfish_hosts", ("redfish_exporter",)),
    ("log_servers", ("elasticsearch",)),
    ("log_exporters", ("elasticsearch_exporter",)),
    ("log_shippers", ("log_shipper",)),
    ("log_viewers", ("kibana",)),
    ("dashboard_hosts", ("grafana",)),
)


# Where Elasticsearch's exporter is older than 1.6 and knows neither TLS nor passwords.
OPEN_EXPORTERS = ("debian-12", "ubuntu-22.04")


def shape(
    groups: Mapping[str, list[str]],
    removed: Sequence[str] = (),
    hostvars: Variables = NOTHING,
    known: Variables = NOTHING,
) -> dict[str, list[str]]:
    """Return the hosts of each function, in the inventory's order; ``slurm`` are those of any of Slurm's.

    A hand-written inventory may leave groups out. Hosts in ``removed`` are on their way out: they are no node and no
    worker any more.
    """
    leaving = set(removed)
    found = {name: list(groups.get(group) or []) for name, group in GROUPS.items()}
    for name in ("nodes", "slurm_workers", "monitored"):
        found[name] = [host for host in found[name] if host not in leaving]
    # Whoever can be installed by its BMC has its network from here too.
    found["networked"] = list(dict.fromkeys([*found["machines"], *found["networked"]]))
    # BMCs are asked where Prometheus is, if there are any.
    with_ipmi = set(found["ipmi_machines"])
    found["redfish_machines"] = [host for host in found["machines"] if host not in with_ipmi]
    for protocol in ("ipmi", "redfish"):
        found[f"{protocol}_hosts"] = found["prometheus_hosts"] if found[f"{protocol}_machines"] else []
    # Log servers tell of themselves where somebody asks, and where nobody else can.
    found["log_exporters"] = [
        host
        for host in (found["log_servers"] if found["prometheus_hosts"] else ())
        if _variable(host, "coldiron_distribution", hostvars, known) not in OPEN_EXPORTERS
    ]
    engines = ("podman_hosts", "apptainer_hosts", "docker_hosts", "enroot_hosts")
    found["with_containers"] = list(dict.fromkeys(host for name in engines for host in found[name]))
    with_gpus = set(found["gpu_nodes"])
    # containerd's are root's, and want no ids of people.
    running = dict.fromkeys([*found["with_containers"], *found["containerd_hosts"]])
    found["with_gpu_containers"] = [host for host in running if host in with_gpus]
    slurm = (name for name in GROUPS if name == "mariadb" or name.startswith("slurm_"))
    found["slurm"] = list(dict.fromkeys(host for name in slurm for host in found[name]))
    # Where jobs are started or asked for, and where Enroot is.
    with_enroot = set(found["enroot_hosts"])
    jobs = dict.fromkeys([*found["slurm_workers"], *found["slurm_logins"]])
    found["pyxis_hosts"] = [host for host in jobs if host in with_enroot]
    return found


def _variable(host: str, name: str, hostvars: Variables, known: Variables) -> Any:
    """A host's inventory variable, where anything is known of the host."""
    return _of(host, hostvars, known).get(name) if host in known or host in hostvars else None


def roles_of(shape: Mapping[str, list[str]], host: str) -> list[str]:
    """Return the roles that ``host`` runs, in the order of the stages."""
    return [role for name, roles in ROLES if name == "nodes" or host in shape[name] for role in roles]


def roles_present(shape: Mapping[str, list[str]]) -> list[str]:
    """Return the roles that some host of the site runs, in the order of the stages."""
    return [role for name, roles in ROLES if shape[name] for role in roles]


def host_values(
    hosts: list[str], hostvars: Variables, *names: str, known: Variables = NOTHING
) -> dict[str, Any]:
    """Map each host to the first of the inventory variables ``names`` that it has.

    Only inventory variables are read, never facts, so hosts outside ``--limit`` and unreachable ones count
    like any other.
    """
    values: dict[str, Any] = {}
    for host in hosts:
        variables = _of(host, hostvars, known)
        for name in names:
            if name in variables:
                values[host] = variables[name]
                break
        else:
            raise AnsibleFilterError(
                f"host {host} has none of {', '.join(names)}: write one of them to the inventory"
            )
    return values


def records(addresses: Mapping[str, str], hosts: list[str]) -> list[dict[str, Any]]:
    """Return ``hosts`` as roles take them: name and address."""
    return [{"name": host, "address": addresses[host]} for host in hosts]


def bmc_records(hostvars: Variables, hosts: list[str], known: Variables = NOTHING) -> list[dict[str, Any]]:
    """Return the records of the management controllers that ``hosts`` have, each as NAME-bmc."""
    found = {host: _of(host, hostvars, known).get("coldiron_bmc_address") for host in hosts}
    return [{"name": f"{host}-bmc", "address": address} for host, address in found.items() if address]


def machines(
    hosts: list[str],
    hostvars: Variables,
    networks: Mapping[str, Mapping[str, Any]],
    domain: str,
    known: Variables = NOTHING,
) -> list[dict[str, Any]]:
    """Return what role deploy is told of each of ``hosts``: the option ``deploy_machine`` of each."""
    network = networks["cluster"]
    found = []
    for host in hosts:
        variables = _of(host, hostvars, known)
        found.append(
            {
                "name": host,
                "domain": domain,
                "address": variables["coldiron_address"],
                "subnet": network["subnet"],
                "gateway": network.get("gateway") or "",
                "name_servers": list(network.get("dns") or []),
                "mac": variables.get("coldiron_mac") or "",
                "serial": variables.get("coldiron_serial") or "",
                "firmware": variables.get("coldiron_boot_firmware") or "uefi",
                "disks": variables.get("coldiron_disks") or [],
            }
        )
    return found


def cache_mirrors(
    addresses: Mapping[str, str],
    machines: Sequence[str],
    caches: Sequence[str],
    hostvars: Variables,
    known: Variables = NOTHING,
) -> list[dict[str, str]]:
    """Return role netboot's ``netboot_mirrors``: which cache of its rack each of ``machines`` asks for images.

    Several caches of one rack share its machines. Those without a rack share the caches without one. A cache never
    asks itself.
    """
    by_rack: dict[str, list[str]] = {}
    for name in caches:
        by_rack.setdefault(_rack(name, hostvars, known), []).append(name)
    asking: dict[str, list[IPv4Network]] = {}
    for number, name in enumerate(machines if by_rack else ()):
        others = [cache for cache in by_rack.get(_rack(name, hostvars, known), ()) if cache != name]
        if others:
            asking.setdefault(others[number % len(others)], []).append(IPv4Network(addresses[name]))
    return [
        {"subnet": str(subnet), "url": f"http://{addresses[cache]}"}
        for cache in caches
        for subnet in collapse_addresses(asking.get(cache, ()))
    ]


def _rack(host: str, hostvars: Variables, known: Variables) -> str:
    return str(_of(host, hostvars, known).get("coldiron_rack_name") or "")


def distinct(hostvars: Variables, hosts: list[str], name: str, known: Variables = NOTHING) -> list[Any]:
    """Return the different values that ``hosts`` have of the inventory variable ``name``, sorted."""
    return sorted({value for host in hosts if (value := _of(host, hostvars, known).get(name))})


# Where Slurm's packages have the plugin that asks the driver for its GPUs.
NVML_DISTRIBUTIONS = ("debian-12", "debian-13")


def workers(
    addresses: Mapping[str, str],
    hosts: list[str],
    hostvars: Variables,
    known: Variables = NOTHING,
    managed: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Return ``hosts`` as the nodes that role slurm_controller takes: name, address and declared hardware.

    The driver of ``managed`` hosts is coldiron's, so slurmd can ask it for the GPUs.
    """
    found, ours = [], set(managed)
    for host, declared in host_values(hosts, hostvars, "coldiron_hardware", known=known).items():
        hardware = dict(declared)
        if hardware.get("gpus"):
            variables = _of(host, hostvars, known)
            gpus = dict(hardware["gpus"])
            if variables.get("coldiron_gpu_mig"):
                gpus["mig"] = variables["coldiron_gpu_mig"]
            if host in ours and variables.get("coldiron_distribution") in NVML_DISTRIBUTIONS:
                gpus["detect"] = "nvml"
            hardware["gpus"] = gpus
        found.append({"name": host, "address": addresses[host], "hardware": hardware})
    return found


def gpu_detect(nodes: Sequence[Mapping[str, Any]]) -> str:
    """Return how slurmd finds the GPUs of the one node in ``nodes``, which :func:`workers` made."""
    return next(
        (
            str(gpus["detect"])
            for node in nodes
            if (gpus := node["hardware"].get("gpus")) and "detect" in gpus
        ),
        "off",
    )


def database_users(
    addresses: Mapping[str, str], clients: list[str], server: str, password: str
) -> list[dict[str, Any]]:
    """Return slurmdbd's database users on ``server``: one for each host in ``clients``."""
    return [
        {
            "name": "slurm",
            "host": "localhost" if client == server else addresses[client],
            "password": password,
            "privileges": "slurm_acct_db.*:ALL",
        }
        for client in clients
    ]


class FilterModule:
    """The filters by name."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {
            "bmc_records": bmc_records,
            "cache_mirrors": cache_mirrors,
            "database_users": database_users,
            "distinct": distinct,
            "gpu_detect": gpu_detect,
            "host_values": host_values,
            "machines": machines,
            "records": records,
            "roles_of": roles_of,
            "roles_present": roles_present,
            "shape": shape,
            "workers": workers,
        }
