"""What warm-ups are good for: scenarios of hand-overs, with warm-ups and without."""
