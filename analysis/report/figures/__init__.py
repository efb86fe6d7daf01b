"""The figures of the report, as SVG text."""
