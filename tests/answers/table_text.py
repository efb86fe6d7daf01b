"""The cells of a table as plain text."""


def cells(table, row):
    return next(one.cells for one in table.rows if one.label == row)


def plain(text):
    return " ".join(text.replace("\u00a0", " ").split())
