"""What is known of a tensor without its data: types, dtype names, strides, promotion, views as index maps."""
