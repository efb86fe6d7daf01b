"""Classes of users: their options, and process-wide settings that they may not keep."""
