#!/usr/bin/python
# Apache-2.0 (see LICENSE)
"""Documentation of the action plugin of the same name."""

DOCUMENTATION = r"""
module: bmc
short_description: Work on a machine through its BMC
version_added: 0.1.0
description:
  - Switches a machine, boots it once from elsewhere, keeps BIOS attributes and boot order as declared, and reads facts,
    event logs, sensors and console. Redfish goes through M(community.general.redfish_info),
    M(community.general.redfish_command), M(community.general.redfish_config) and M(ansible.builtin.uri), IPMI through
    C(ipmitool).
  - Nothing is believed because a BMC said yes. What was asked for is read back, and a one-time boot comes with proof.
  - Before a machine is switched, its serial and MAC are held against the declared ones; another machine is refused.
  - Certificates are always verified, by I(ca) or against one that was learnt by name. A busy BMC or a lost answer is
    tried again, I(retries) times; a refused password never, since accounts get locked.
  - Runs on the controller (C(delegate_to=localhost)).
requirements:
  - The Python package coldiron, in the same Python as Ansible.
  - C(ipmitool) on the controller, for IPMI.
options:
  state:
    description:
      - V(facts) reads and compares; V(on), V(off) and V(cycled) are about power; V(booted_once) boots once from
        I(target); V(boots_from_disk) takes any other boot override back; V(configured) is about I(attributes) and
        I(boot_order); V(events), V(sensors) and V(console) are read into I(directory); V(trusted) learns a certificate.
    type: str
    required: true
    choices: ["facts", "on", "off", "cycled", "booted_once", "boots_from_disk", "configured", "events", "sensors",
      "console", "trusted"]
  node:
    description: The machine's name, for messages and for its learnt certificate.
    type: str
    required: true
  bmc:
    description: How the BMC is reached, and which machine it has to be of.
    type: dict
    required: true
    suboptions:
      address:
        description: Where it answers.
        type: str
        required: true
      protocol:
        description: V(ipmi) is IPMI 2.0 over LAN, for BMCs without Redfish.
        type: str
        choices: [redfish, ipmi]
        default: redfish
      port:
        description: Its port; 0 is the protocol's own.
        type: int
        default: 0
      user:
        description: The account.
        type: str
        default: ""
      password:
        description: The account's password. It is in no result and among no process's words.
        type: str
        default: ""
      credentials:
        description: The name of the variable that both come from, for messages.
        type: str
        default: ""
      ca:
        description: PEM file of the CA that signs the BMCs' certificates; empty for those that this machine trusts.
        type: str
        default: ""
      known:
        description: Learnt certificates by node, as I(known_file) holds them.
        type: dict
        default: {}
      serial:
        description: The serial that the machine has to have; empty where it is not known.
        type: str
        default: ""
      mac:
        description: A MAC that the machine has to have; empty where it is not known.
        type: str
        default: ""
      firmware:
        description: What boots by IPMI ask for.
        type: str
        choices: [uefi, bios]
        default: uefi
      cipher_suite:
        description: IPMI's cipher suite.
        type: int
        default: 3
      timeout_seconds:
        description: How long one answer may take.
        type: int
        default: 30
      retries:
        description: Tries after the first, 1, 2, 4 ... seconds apart.
        type: int
        default: 3
  grace_seconds:
    description: How long the machine may take to shut down; 0 does not ask for it.
    type: int
    default: 120
  power_seconds:
    description: How long the power may take to become what was asked for.
    type: int
    default: 60
  proof_seconds:
    description: How long the start may take to use up the override, or to take attributes over.
    type: int
    default: 60
  force:
    description: Whether the power may be cut where a shutdown is not asked for, or does not come.
    type: bool
    default: false
  target:
    description: What to boot from, in Redfish's words - Pxe, UefiHttp, Hdd, Cd; None takes an override back.
    type: str
    default: ""
  cycle:
    description: Whether V(booted_once) starts the machine at once; else the override waits for a start.
    type: bool
    default: true
  attributes:
    description: BIOS attributes by the names of this machine's BIOS.
    type: dict
    default: {}
  boot_order:
    description: Boot options by reference or name, the first ones; the others follow as they are.
    type: list
    elements: str
    default: []
  may_reboot:
    description: Whether V(configured) may start the machine once, so that attributes are taken over.
    type: bool
    default: false
  directory:
    description: Where files are written to.
    type: str
    default: ""
  known_file:
    description: The file of learnt certificates.
    type: str
    default: ""
  fingerprint:
    description: What the certificate to be learnt has to have; without it V(trusted) says what is shown, and learns
      nothing.
    type: str
    default: ""
  console_file:
    description: The file that the machine's serial line is written to; without one the console is read by IPMI.
    type: str
    default: ""
  console_seconds:
    description: How long to listen.
    type: int
    default: 10
attributes:
  check_mode:
    support: full
    description: The BMC is read, nothing is sent.
  diff_mode:
    support: full
    description: Power, boot override, attributes and boot order before and after.
author:
  - The coldiron maintainers
"""

EXAMPLES = r"""
- name: Boot the machine once from the network
  coldiron.cluster.bmc:
    state: booted_once
    target: Pxe
    node: gpu01
    bmc:
      address: 10.24.1.1
      user: "{{ bmc_credentials.user }}"
      password: "{{ bmc_credentials.password }}"
      ca: /etc/ssl/bmc-ca.crt
      mac: "00:11:22:33:44:55"
  delegate_to: localhost
"""

RETURN = r"""
bmc:
  description:
    - The machine - C(serials), C(model), C(maker), C(bios_version), C(macs), C(power), C(override), C(attributes),
      C(pending), C(boot_order). What the BMC does not say is empty.
  returned: states that read the machine
  type: dict
proof:
  description:
    - What became of a one-time boot - C(outcome) is V(took), V(stays) (the BMC keeps it for every start), V(waits),
      V(lost), V(not armed) or V(unknown); C(why) says it in a line; C(clear) asks for V(boots_from_disk) later.
  returned: I(state=booted_once)
  type: dict
waits:
  description: What only a start of the machine would bring about.
  returned: success
  type: list
  elements: str
files:
  description: The files that were written.
  returned: states that write files
  type: list
  elements: str
"""
