"""A page on this machine where parameters of finished runs are turned and the money is seen to move."""
