"""State that guards depend on, read where torch and Python keep it: native checks of memory."""
