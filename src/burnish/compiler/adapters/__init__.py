"""What stands around a compiled graph so that a call of it behaves as eager does."""
