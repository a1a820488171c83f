"""The version, read by the build as well."""

__version__ = "2.0.0.dev0"
git_version = "unknown"
