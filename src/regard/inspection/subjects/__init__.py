"""Models that text can be put to, each with what turns text into its input: `subject(model_or_folder)`, then `look`."""

from regard.inspection.subjects.finding import subject
from regard.inspection.subjects.subject import Subject, Wanted

__all__ = ["Subject", "Wanted", "subject"]
