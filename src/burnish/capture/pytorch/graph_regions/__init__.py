"""Functions whose torch calls become a graph of their own: what regions share, and FlexAttention."""
