#!/usr/bin/python
# Apache-2.0 (see LICENSE)
"""Documentation of the action plugin of the same name."""

DOCUMENTATION = r"""
module: deploy_order
short_description: Order a machine's deployment at the provisioner
version_added: 0.1.0
description:
  - Works out on the controller what a machine is to become and who it then is, has the provisioner (the host that the
    task is delegated to) make and keep its ssh host key, writes the key's public half into a file of known hosts, and
    hands both texts to C(coldiron-deployd) on its standard input.
  - Nothing is booted and no disk is written by it.
options:
  node:
    description: What the inventory says of the machine, as the option C(deploy_machine) of role deploy.
    type: dict
    required: true
  others:
    description: All machines that can be deployed; whose serial a consent is follows from them.
    type: list
    elements: dict
    default: []
  wishes:
    description: consent, sizes, kernel_arguments, boot, authorized_keys, network, network_spec, files, hosts.
    type: dict
    required: true
  image:
    description: store (the directory of images), class, and oldest in seconds since the epoch.
    type: dict
    required: true
  known_hosts:
    description: The file on the controller that learns the machine's host key.
    type: path
    required: true
  private_key_file:
    description: Whose public half may log in where the wishes name no key.
    type: str
    default: ""
  host_keys:
    description: The directory on the provisioner that keeps host keys.
    type: path
    required: true
  command:
    description: The provisioner's command.
    type: str
    required: true
attributes:
  check_mode:
    support: full
    description: Says what would be ordered; no host key is made.
author:
  - The coldiron maintainers
"""

EXAMPLES = r"""
- name: Deploy | Order the machine
  coldiron.cluster.deploy_order:
    node: "{{ deploy_machine }}"
    wishes: {consent: []}
    image: {store: "{{ inventory_dir }}/.images", class: cpu-debian-13}
    known_hosts: "{{ inventory_dir }}/.known_hosts"
    host_keys: /var/lib/coldiron/host-keys
    command: coldiron-deployd
  delegate_to: head01
"""

RETURN = r"""
image:
  description: The digest of the image that it will get.
  returned: success
  type: str
consent:
  description: The serials of disks whose content may be lost.
  returned: success
  type: list
  elements: str
"""
