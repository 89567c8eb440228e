"""Native functions of products whose weight is integers."""
