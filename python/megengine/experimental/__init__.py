"""What may change: import it by name, ``import megengine.experimental``."""

from .weight_scaler import get_scaled_model as get_scaled_model
