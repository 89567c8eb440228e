"""Native guard checks: compare the memory where torch and Python store the state that guards depend on."""
