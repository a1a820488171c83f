"""Automatic differentiation below GradManager."""
