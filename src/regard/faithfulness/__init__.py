"""Is this attention an explanation? Tests with their controls, and a report that says what to believe."""

from regard.faithfulness.adversary import PUBLISHED, QUICK
from regard.faithfulness.audit import audit
from regard.faithfulness.pages.glossary import called
from regard.faithfulness.report import Report
from regard.faithfulness.run_tests import Settings

__all__ = ["PUBLISHED", "QUICK", "Report", "Settings", "audit", "called"]
