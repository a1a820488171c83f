"""The version, read by the build as well."""

__version__ = "1.14.0"
git_version = "unknown"
