"""Programs that try to break Burnish, for as long as they are given."""
