"""From logs to trained models that can sit in a stage: data, module and bidder kinds, recipes."""
