"""What a world is to a study: who comes, what serves them, what comes of a page, how it is measured."""
