"""What can be found wrong without touching a node, and what a run would do.

``plan.make`` checks cluster.yml, the design of the site, the secrets and every option of every role over the resolved
inventory, and says which stage applies which role to which nodes. ``codes`` explains what the findings mean.
"""

from coldiron.plan.data import Plan
from coldiron.plan.findings import Finding, Severity
from coldiron.plan.make import make

__all__ = ["Finding", "Plan", "Severity", "make"]
