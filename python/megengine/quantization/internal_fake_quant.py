"""A place kept by the API; it holds nothing."""
