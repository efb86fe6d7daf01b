"""The page, the terminal table and the decision that leads both."""
