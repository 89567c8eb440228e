"""Native functions that are no loop nest: products, attention, recurrent layers, guards."""
