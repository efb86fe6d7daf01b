"""Shapes of nets that their kernels share with them."""

INTTOWER_LAYERS = 2  # of interaction towers: layers of the request's tower that meet the ad's last one
COLD_GROUPS = 4  # groups of features with a gate: request, ad, crosses, pair
