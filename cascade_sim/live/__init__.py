"""A page on this machine where knobs of finished runs are turned and the money is seen to move."""
