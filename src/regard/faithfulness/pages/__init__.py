"""The parts of an audit's page, from top to bottom: verdicts, tests, decisions, numbers."""
