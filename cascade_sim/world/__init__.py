"""What all arms share: users, ads, advertisers, and the hidden truth of clicks and conversions."""
