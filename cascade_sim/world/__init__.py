"""What all arms share: users, ads, advertisers, and the ground truth of clicks and conversions."""
