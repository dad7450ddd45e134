"""What ``headrace doctor`` looks at: one module a subject, each gives findings."""

from headrace.cli.checkup.finding import Finding, Status

__all__ = ["Finding", "Status"]
