"""Never slower: compiled code is measured against eager, and the faster one runs."""
