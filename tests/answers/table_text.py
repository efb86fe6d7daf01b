"""The cells of a table as plain text."""


def cells(table, label):
    return next(row.cells for row in table.rows if row.label == label)


def by_column(table, label):
    """Column → cell of a row."""
    return dict(zip(table.columns, cells(table, label), strict=True))


def plain(text):
    return " ".join(text.replace("\u00a0", " ").split())
