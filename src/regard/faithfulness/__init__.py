"""Is this attention an explanation? Tests with their controls, and a report that says what to believe."""
