"""The parts of the report page, from top to bottom: verdicts, tests, decisions, numbers."""
