"""One object that puts text to a model: `adapter(model_or_folder)`, whatever family it is of."""

from regard.adapters.base import ModelAdapter
from regard.adapters.borrow import borrowed
from regard.adapters.factory import adapter, run_adapter

__all__ = ["ModelAdapter", "adapter", "borrowed", "run_adapter"]
