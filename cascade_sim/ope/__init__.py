"""What randomised logs alone can say of another policy: the log, slates, estimates, coverage."""
