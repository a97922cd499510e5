"""Faithfulness: is this attention an explanation? Tests with controls, and a report with a verdict for each map."""

from regard.faithfulness.adversary import PUBLISHED_SEARCH, QUICK_SEARCH
from regard.faithfulness.audit import audit
from regard.faithfulness.decision_scores import AuditSettings
from regard.faithfulness.pages.glossary import display_names
from regard.faithfulness.report import Report

__all__ = ["PUBLISHED_SEARCH", "QUICK_SEARCH", "AuditSettings", "Report", "audit", "display_names"]
