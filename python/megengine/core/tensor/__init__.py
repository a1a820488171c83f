"""What tensors are made of besides storage: dtypes, index rules, argument helpers."""
