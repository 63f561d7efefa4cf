"""Options that every module has which asks an Elasticsearch, or a Kibana."""

from __future__ import annotations


class ModuleDocFragment:
    """How its server is reached; the arguments are CONNECTION in module_utils/elasticsearch.py."""

    DOCUMENTATION = r"""
options:
  address:
    description: The server's own address, one that its certificate names.
    type: str
    required: true
  port:
    description: The port of its HTTP interface.
    type: int
    default: 9200
  ca:
    description: The file with the authority's certificate.
    type: path
    required: true
  user:
    description: As whom it is asked; somebody who may do what is declared.
    type: str
    required: true
  password:
    description: That one's password.
    type: str
    required: true
"""
