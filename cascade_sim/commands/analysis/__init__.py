"""Analysis of finished runs: traces, what-ifs, comparisons and off-policy estimates."""
