"""Pages and JUnit files that stand alone: what a verification found, and what a run did."""

from coldiron.report.run import write_run_report
from coldiron.report.verify import write_verify_report

__all__ = ["write_run_report", "write_verify_report"]
